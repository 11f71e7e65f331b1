// SPDX-License-Identifier: Apache-2.0

// Package snapshot records the state of the host that a cluster may change, and reports the leftovers of the cluster
// afterwards.
package snapshot

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// Snapshot is the state of a host at one time. It contains only the state that a cluster changes.
type Snapshot struct {
	BootID    string            `json:"bootID"`    // of the kernel: everything but folders ends with it
	Links     []string          `json:"links"`     // network interfaces
	Routes    []string          `json:"routes"`    // IPv4, main table, as `ip route` prints them
	Tables    map[string]string `json:"tables"`    // packet filter tables, without counters
	Mounts    []string          `json:"mounts"`    // mount points
	Cgroups   []string          `json:"cgroups"`   // folders below /sys/fs/cgroup
	Processes []string          `json:"processes"` // of the cluster only, e.g. "123 kubelet"
	Folders   []string          `json:"folders"`   // below the places that Kubernetes writes to
	Sysctls   map[string]string `json:"sysctls"`   // the settings that a cluster changes
}

// Leftover is a difference between two snapshots.
type Leftover struct {
	Kind string // link, route, table, mount, cgroup, process, folder or sysctl
	Name string // which one, and how it changed
	Mine bool   // true if a cluster made it, false if another program did
}

var vethOfCNI = regexp.MustCompile(`^veth[0-9a-f]{8}$`)

// Diff returns the items that only after contains and the settings that differ, in a fixed order. dir is the state folder of
// the cluster.
func Diff(before, after Snapshot, dir layout.Dir) []Leftover {
	var left []Leftover
	lists := []struct {
		kind          string
		before, after []string
		mine          func(string) bool
	}{
		{"link", before.Links, after.Links, func(n string) bool { return n == layout.Bridge || vethOfCNI.MatchString(n) }},
		{"route", before.Routes, after.Routes, func(n string) bool { return strings.Contains(n, "dev "+layout.Bridge) }},
		{"mount", before.Mounts, after.Mounts, func(n string) bool { return isBelow(n, string(dir)) }},
		{"cgroup", before.Cgroups, after.Cgroups, func(n string) bool { return strings.Contains(n, "/kubepods") }},
		{"process", before.Processes, after.Processes, matchAll},
		{"folder", before.Folders, after.Folders, func(n string) bool { return !isBelow(n, mountState) }},
	}
	for _, l := range lists {
		for _, name := range addedNames(l.before, l.after) {
			left = append(left, Leftover{Kind: l.kind, Name: name, Mine: l.mine(name)})
		}
	}
	left = append(left, changed("table", before.Tables, after.Tables)...)
	return append(left, changed("sysctl", before.Sysctls, after.Sysctls)...)
}

func matchAll(string) bool { return true }

func isBelow(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// addedNames returns the elements of after that before has fewer of, sorted.
func addedNames(before, after []string) []string {
	count := map[string]int{}
	for _, name := range before {
		count[name]++
	}
	var names []string
	for _, name := range after {
		if count[name]--; count[name] < 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// changed compares values that must be as they were.
func changed(kind string, before, after map[string]string) []Leftover {
	var left []Leftover
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, there := before[name]
		switch {
		case !there:
			left = append(left, Leftover{Kind: kind, Name: name, Mine: true})
		case was != after[name]:
			left = append(left, Leftover{Kind: kind, Name: name + " (changed" + shortChange(was, after[name]) + ")", Mine: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			left = append(left, Leftover{Kind: kind, Name: name + " (gone)", Mine: true})
		}
	}
	return left
}

// shortChange returns both values if they are short, such as the values of sysctls.
func shortChange(was, is string) string {
	if len(was)+len(is) > 60 {
		return ""
	}
	return fmt.Sprintf(" from %q to %q", was, is)
}

// Save writes the snapshot to a file.
func (s Snapshot) Save(path string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of the host: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing the record of the host: %w", err)
	}
	return nil
}

// Load reads a snapshot that Save wrote. The error is os.ErrNotExist if there is none.
func Load(path string) (Snapshot, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading the record of the host: %w", err)
	}
	var s Snapshot
	if err := json.Unmarshal(content, &s); err != nil {
		return Snapshot{}, fmt.Errorf("decoding %s: %w", path, err)
	}
	return s, nil
}
