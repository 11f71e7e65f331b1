// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

// cniDirs lists the folders of CNI plugins in the distributions.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// requirement is a Debian package and the file or program that shows that it is installed.
type requirement struct {
	name    string // of the package
	present func() bool
}

func requirements() []requirement {
	program := func(name string) func() bool {
		return func() bool { _, err := LookPath(name); return err == nil }
	}
	return []requirement{
		{"runc", program("runc")},
		{"containernetworking-plugins", func() bool { _, err := CNIDir(); return err == nil }},
		{"iptables", program("iptables-restore")}, // the CNI plugin for ports of the host calls it
		{"nftables", program("nft")},
		{"iproute2", program("ip")},
		{"kmod", func() bool { return modulesThere() || program("modprobe")() }},
	}
}

// CNIDir is the folder of the CNI plugins.
func CNIDir() (string, error) {
	for _, dir := range cniDirs {
		complete := true
		for _, name := range []string{"bridge", "host-local", "loopback", "portmap"} {
			_, err := os.Stat(filepath.Join(dir, name))
			complete = complete && err == nil
		}
		if complete {
			return dir, nil
		}
	}
	return "", fmt.Errorf("finding the CNI plugins bridge, host-local, loopback and portmap: none of %s has them all",
		strings.Join(cniDirs, ", "))
}

// CheckRights fails where a cluster cannot be run, and names the remedy.
func CheckRights() error {
	if runtime.GOOS != "linux" {
		return errors.New("a cluster without Docker needs Linux; start a Docker engine, or use CLUSTER=current with a cluster that you have")
	}
	if os.Geteuid() != 0 {
		return errors.New("a cluster without Docker needs root; run this with sudo -E, start a Docker engine, " +
			"or use CLUSTER=current with a cluster that you have")
	}
	if entries, err := os.ReadDir("/sys/fs/cgroup"); err != nil || len(entries) == 0 {
		return errors.New("no control groups at /sys/fs/cgroup; mount them (in a container: run it privileged)")
	}
	return nil
}

// InstallPackages logs the missing packages and installs them.
func InstallPackages(ctx context.Context, log *progress.Log) error {
	var missing []string
	for _, r := range requirements() {
		if !r.present() {
			missing = append(missing, r.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, " ")
	if _, err := LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing programs, and no apt-get to install them: install what Debian calls %s", names)
	}
	return log.Step("installing Debian packages: "+names, func() error {
		if _, err := runProgram(ctx, "", "apt-get", "update", "-q"); err != nil {
			log.Say("    apt-get update failed, trying with the lists that are there")
		}
		args := append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...)
		if _, err := runProgram(ctx, "", "apt-get", args...); err != nil {
			return fmt.Errorf("installing packages (by hand: apt-get install %s): %w", names, err)
		}
		return nil
	})
}
