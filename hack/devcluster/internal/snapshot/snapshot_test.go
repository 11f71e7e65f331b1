// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func base() Snapshot {
	return Snapshot{
		BootID: "b", Links: []string{"lo", "eth0"}, Routes: []string{"default via 192.0.2.1 dev eth0"},
		Tables: map[string]string{"ip nat": "table ip nat {}"}, Mounts: []string{"/", "/proc"},
		Cgroups: []string{"/sys/fs/cgroup/pids"}, Folders: []string{"/etc/cni"},
		Sysctls: map[string]string{"net/ipv4/ip_forward": "0"},
	}
}

func TestDiff_ListsChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Snapshot)
		want   []Leftover
	}{
		"nothing": {change: func(*Snapshot) {}},
		"the bridge and a pod's link": {
			change: func(s *Snapshot) { s.Links = append(s.Links, "veth0a1b2c3d", "cni0") },
			want:   []Leftover{{"link", "cni0", true}, {"link", "veth0a1b2c3d", true}},
		},
		"somebody else's link": {
			change: func(s *Snapshot) { s.Links = append(s.Links, "vethpostgres") },
			want:   []Leftover{{"link", "vethpostgres", false}},
		},
		"a link that went": {change: func(s *Snapshot) { s.Links = s.Links[:1] }},
		"a second mount on the same place": {
			change: func(s *Snapshot) { s.Mounts = append(s.Mounts, "/proc", "/var/tmp/c/kubelet/x", "/var/tmp/cc") },
			want: []Leftover{{"mount", "/proc", false}, {"mount", "/var/tmp/c/kubelet/x", true},
				{"mount", "/var/tmp/cc", false}},
		},
		"a pod's cgroup": {
			change: func(s *Snapshot) { s.Cgroups = append(s.Cgroups, "/sys/fs/cgroup/pids/kubepods", "/sys/fs/cgroup/a") },
			want: []Leftover{{"cgroup", "/sys/fs/cgroup/a", false},
				{"cgroup", "/sys/fs/cgroup/pids/kubepods", true}},
		},
		"a table more, one changed": {
			change: func(s *Snapshot) {
				s.Tables = map[string]string{"ip nat": "table ip nat { chain CNI-X {} }", "ip kube-proxy": ""}
			},
			want: []Leftover{{"table", "ip kube-proxy", true},
				{"table", `ip nat (changed from "table ip nat {}" to "table ip nat { chain CNI-X {} }")`, true}},
		},
		"a setting": {
			change: func(s *Snapshot) { s.Sysctls = map[string]string{"net/ipv4/ip_forward": "1"} },
			want:   []Leftover{{"sysctl", `net/ipv4/ip_forward (changed from "0" to "1")`, true}},
		},
		"a process, a folder, a route": {
			change: func(s *Snapshot) {
				s.Processes, s.Folders = []string{"7 kubelet"}, append(s.Folders, "/var/lib/cni")
				s.Routes = append(s.Routes, "10.96.0.0/16 dev cni0 scope link")
			},
			want: []Leftover{{"route", "10.96.0.0/16 dev cni0 scope link", true}, {"process", "7 kubelet", true},
				{"folder", "/var/lib/cni", true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := base()
			tc.change(&after)
			require.Equal(t, tc.want, Diff(base(), after, "/var/tmp/c"))
		})
	}
}

func TestSave_IsReadByLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "before.json")
	_, err := Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, base().Save(path))
	got, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, base(), got)
}

func TestBelongs_MatchesFolders(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args        []string
		exe, cgroup string
		want        bool
	}{
		"a component":        {args: []string{"/var/tmp/c/bin/kubelet"}, exe: "/var/tmp/c/bin/kube", want: true},
		"a shim":             {args: []string{"/var/tmp/c/bin/containerd-shim-runc-v2", "-id", "1"}, want: true},
		"in a pod":           {args: []string{"/entrypoint"}, exe: "/entrypoint", cgroup: "8:pids:/kubepods/besteffort/pod1/2", want: true},
		"reads a log of it":  {args: []string{"tail", "-f", "/var/tmp/c/logs/etcd.log"}, exe: "/usr/bin/tail"},
		"of another cluster": {args: []string{"/var/tmp/cc/bin/kubelet"}, exe: "/var/tmp/cc/bin/kube"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, belongs("/var/tmp/c", tc.args, tc.exe, tc.cgroup))
		})
	}
}

func TestFolders_DescendTwoLevels(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a", "b", "c"), 0o755))
	require.Equal(t, []string{root, root + "/a", root + "/a/b"}, folders([]string{root, root + "-none"}))
}
