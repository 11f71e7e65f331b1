// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/snapshot"
)

// settings are the kernel settings that pods need. They enable routing. They also pass packets between pods on the bridge
// through the packet filter, so that a pod reaches a Service whose pod is on the same bridge.
var settings = map[string]string{
	"net/ipv4/ip_forward":                "1",
	"net/bridge/bridge-nf-call-iptables": "1",
}

func modulesThere() bool {
	_, err := os.Stat("/proc/sys/net/bridge")
	filesystems, readErr := os.ReadFile("/proc/filesystems")
	return err == nil && readErr == nil && strings.Contains(string(filesystems), "\toverlay\n")
}

// LoadModules loads the kernel's parts for bridges and layered file systems,
// if they are not there.
func LoadModules(ctx context.Context) error {
	if modulesThere() {
		return nil
	}
	if _, err := runProgram(ctx, "", "modprobe", "-a", "br_netfilter", "overlay"); err != nil {
		return fmt.Errorf("loading modules of the kernel (in a container: load them on its host): %w", err)
	}
	return nil
}

// natTable lets pods reach addresses outside the cluster with the host's address.
const natTable = `table ip ` + layout.NATTable + `
delete table ip ` + layout.NATTable + `
table ip ` + layout.NATTable + ` {
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip saddr ` + layout.PodSubnet + ` oifname != "` + layout.Bridge + `" masquerade
	}
}
`

// BridgeThere reports whether an interface with the bridge's name exists.
func BridgeThere() bool {
	_, err := os.Stat("/sys/class/net/" + layout.Bridge)
	return err == nil
}

// CheckAddresses fails where the host has an address in the cluster's networks.
func CheckAddresses() error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("listing the host's addresses: %w", err)
	}
	for _, subnet := range []string{layout.ClusterSubnet, layout.ServiceSubnet} {
		prefix := netip.MustParsePrefix(subnet)
		for _, a := range addresses {
			if own, err := netip.ParsePrefix(a.String()); err == nil && prefix.Contains(own.Addr()) {
				return fmt.Errorf("this host has the address %s, and the cluster needs %s for itself", own.Addr(), subnet)
			}
		}
	}
	return nil
}

// NetworkUp creates the bridge, its address, the route to Services, and the settings. It is idempotent.
func NetworkUp(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := os.WriteFile("/proc/sys/"+name, []byte(settings[name]), 0o644); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	var commands [][]string
	if !BridgeThere() {
		commands = append(commands, []string{"link", "add", layout.Bridge, "address", layout.BridgeMAC, "type", "bridge"})
	}
	commands = append(commands,
		[]string{"address", "replace", layout.BridgePrefix, "dev", layout.Bridge},
		[]string{"link", "set", layout.Bridge, "up"},
		// The host too reaches Services, even one without a default route.
		[]string{"route", "replace", layout.ServiceSubnet, "dev", layout.Bridge})
	for _, args := range commands {
		if _, err := runProgram(ctx, "", "ip", args...); err != nil {
			return err
		}
	}
	_, err := runProgram(ctx, natTable, "nft", "-f", "-")
	return err
}

// NetworkDown removes the network objects of the cluster and its plugins. before is the snapshot of the host without the
// cluster: its objects stay.
func NetworkDown(ctx context.Context, dir layout.Dir, before snapshot.Snapshot) error {
	errs := []error{cleanIPTables(ctx)}
	now, err := snapshot.Take(ctx, dir)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, left := range snapshot.Diff(before, now, dir) {
		if left.Kind == "link" && left.Mine {
			_, err := runProgram(ctx, "", "ip", "link", "delete", left.Name)
			if !strings.Contains(fmt.Sprint(err), "Cannot find device") { // the other end went first
				errs = append(errs, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.Tables)) {
		if _, there := before.Tables[name]; there || !removable(name, now.Tables[name]) {
			continue
		}
		_, err := runProgram(ctx, "", "nft", append([]string{"delete", "table"}, strings.Fields(name)...)...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RestoreSettings gives the kernel the values that it had before.
func RestoreSettings(before snapshot.Snapshot) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(before.Sysctls)) {
		now, err := os.ReadFile("/proc/sys/" + name)
		if err != nil || strings.TrimSpace(string(now)) == before.Sysctls[name] {
			continue // gone with the cluster, or as it was
		}
		if err := os.WriteFile("/proc/sys/"+name, []byte(before.Sysctls[name]), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("restoring %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
