// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// watched are the places outside of the state folder that Kubernetes,
// containerd or CNI plugins write to by habit.
var watched = []string{
	"/etc/cni", "/etc/containerd", "/etc/kubernetes", "/opt/cni", "/opt/containerd", "/opt/nri",
	"/run/containerd", "/run/kubernetes", mountState, "/run/nri", "/run/runc", "/run/xtables.lock", "/run/nodeagent",
	"/usr/libexec/kubernetes", "/var/lib/calico", "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet",
	"/var/lib/kube-proxy", "/var/log/containers", "/var/log/pods",
}

// mountState is the folder that the first call of mount or umount creates, regardless of the caller.
const mountState = "/run/mount"

// watchedDepth bounds how far below a watched place entries count.
const watchedDepth = 2

// sysctls lists the settings that the kubelet, kube-proxy and the bridge change.
var sysctls = []string{
	"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
	"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
	"net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_tcp_be_liberal",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

const cgroupRoot = "/sys/fs/cgroup"

// Take records the current state of the host. dir is the cluster's state folder.
func Take(ctx context.Context, dir layout.Dir) (Snapshot, error) {
	s := Snapshot{Sysctls: map[string]string{}}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return s, fmt.Errorf("reading the boot id: %w", err)
	}
	s.BootID = strings.TrimSpace(string(boot))
	for _, name := range sysctls {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil { // not every kernel has all
			s.Sysctls[name] = strings.TrimSpace(string(value))
		}
	}
	if s.Links, err = networkLinks(); err != nil {
		return s, err
	}
	if s.Routes, err = readRoutes(ctx); err != nil {
		return s, err
	}
	if s.Tables, err = readTables(ctx); err != nil {
		return s, err
	}
	if s.Mounts, err = Mounts(); err != nil {
		return s, err
	}
	s.Cgroups, s.Folders = Cgroups(), folders(watched)
	for _, p := range Processes(dir) {
		s.Processes = append(s.Processes, fmt.Sprintf("%d %s", p.PID, filepath.Base(p.Args[0])))
	}
	return s, nil
}

func networkLinks() ([]string, error) {
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

func runForOutput(ctx context.Context, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func nonEmptyLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
}

func readRoutes(ctx context.Context) ([]string, error) {
	out, err := runForOutput(ctx, "ip", "-4", "route", "show")
	if err != nil {
		return nil, err
	}
	all := nonEmptyLines(out)
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all, nil
}

// counters matches the counters in the output of iptables-save.
var counters = regexp.MustCompile(`\[\d+:\d+\]`)

// readTables returns the text of every nftables table. If iptables is the legacy version, the result includes its tables.
func readTables(ctx context.Context) (map[string]string, error) {
	list, err := runForOutput(ctx, "nft", "list", "tables")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, line := range nonEmptyLines(list) {
		name := strings.TrimPrefix(line, "table ")
		text, err := runForOutput(ctx, "nft", append([]string{"-s", "list", "table"}, strings.Fields(name)...)...)
		if err != nil {
			return nil, err
		}
		all[name] = text
	}
	version, err := runForOutput(ctx, "iptables", "--version")
	if err != nil || !strings.Contains(version, "legacy") {
		return all, err
	}
	for _, command := range []string{"iptables-save", "ip6tables-save"} {
		text, err := runForOutput(ctx, command)
		if err != nil {
			return nil, err
		}
		rules := slices.DeleteFunc(nonEmptyLines(text), func(line string) bool { return strings.HasPrefix(line, "#") })
		all["legacy "+command] = counters.ReplaceAllString(strings.Join(rules, "\n"), "")
	}
	return all, nil
}

// Mounts returns all mount points of this mount namespace in mount order.
func Mounts() ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for _, line := range nonEmptyLines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points, nil
}

// Cgroups returns all control groups, parents first.
func Cgroups() []string {
	var all []string
	// Groups come and go during the walk. An unreadable group counts as missing.
	_ = filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case entry.IsDir() && path != cgroupRoot:
			all = append(all, path)
		}
		return nil
	})
	return all
}

// folders returns the existing places and their contents.
func folders(places []string) []string {
	var all []string
	for _, place := range places {
		// Entries that vanish during the walk or cannot be read count as missing.
		_ = filepath.WalkDir(place, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) || entry == nil {
					return nil
				}
				return fs.SkipDir
			}
			all = append(all, path)
			if entry.IsDir() && strings.Count(path, "/")-strings.Count(place, "/") >= watchedDepth {
				return fs.SkipDir
			}
			return nil
		})
	}
	return all
}

// Process is a process of the cluster.
type Process struct {
	PID  int
	Args []string // as it was called; at least one
}

// Processes returns the processes of the cluster in dir: processes with an executable in the state folder, and processes in the
// containers of its pods.
func Processes(dir layout.Dir) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		place := filepath.Join("/proc", entry.Name())
		cmdline, _ := os.ReadFile(filepath.Join(place, "cmdline")) // empty if the process has exited
		cgroup, _ := os.ReadFile(filepath.Join(place, "cgroup"))
		exe, _ := os.Readlink(filepath.Join(place, "exe"))
		args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		if args[0] == "" { // a zombie, or a thread of the kernel
			continue
		}
		if belongs(dir, args, exe, string(cgroup)) {
			found = append(found, Process{PID: pid, Args: args})
		}
	}
	return found
}

func belongs(dir layout.Dir, args []string, exe, cgroup string) bool {
	return isBelow(args[0], string(dir)) || isBelow(exe, string(dir)) || strings.Contains(cgroup, "/kubepods")
}
