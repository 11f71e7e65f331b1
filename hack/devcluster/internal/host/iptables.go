// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// ownTables lists the nftables tables that the cluster and its plugins create as a whole.
var ownTables = []string{
	"ip kube-proxy", "ip6 kube-proxy", "ip " + layout.NATTable,
	"inet cni_hostport", "ip cni_hostport", "inet cni_plugins_masquerade", "ip cni_plugins_masquerade",
}

// iptablesTables lists the nftables tables that iptables creates on its first call.
var iptablesTables = []string{"nat", "filter", "mangle", "raw", "security"}

// removable reports whether the cleanup may remove a table that did not exist before the cluster. It may remove the cluster's
// own tables, and iptables tables without rules.
func removable(name, text string) bool {
	if slices.Contains(ownTables, name) {
		return true
	}
	_, table, _ := strings.Cut(name, " ")
	return slices.Contains(iptablesTables, table) && !hasRules(text)
}

// hasRules reports whether an nftables table contains a rule or a user-defined chain.
func hasRules(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line == "}" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "table ") || strings.HasPrefix(line, "type "):
		case strings.HasPrefix(line, "chain ") && builtin(line):
		default:
			return true
		}
	}
	return false
}

var builtinChain = regexp.MustCompile(`^chain (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) \{$`)

func builtin(line string) bool { return builtinChain.MatchString(line) }

// cleanIPTables removes the chains of CNI plugins and of Kubernetes, and the
// rules that lead to them.
func cleanIPTables(ctx context.Context) error {
	version, err := runProgram(ctx, "", "iptables", "--version")
	if err != nil {
		return err
	}
	there := ""
	if !strings.Contains(version, "legacy") { // asking for a table of nftables would make it
		if there, err = runProgram(ctx, "", "nft", "list", "tables"); err != nil {
			return err
		}
	}
	var errs []error
	for family, command := range map[string]string{"ip": "iptables", "ip6": "ip6tables"} {
		for _, table := range iptablesTables[:3] {
			if there != "" && !strings.Contains(there, "table "+family+" "+table+"\n") {
				continue
			}
			errs = append(errs, cleanTable(ctx, command, table))
		}
	}
	return errors.Join(errs...)
}

func cleanTable(ctx context.Context, command, table string) error {
	rules, err := runProgram(ctx, "", command, "-t", table, "-S")
	if err != nil {
		return err
	}
	script := cleanupScript(table, rules)
	if script == "" {
		return nil
	}
	_, err = runProgram(ctx, script, command+"-restore", "--noflush")
	return err
}

var (
	ownChain = regexp.MustCompile(`^-N ((?:CNI|KUBE)-\S+)$`)
	ownRule  = regexp.MustCompile(`-[jg] (?:CNI|KUBE)-`)
)

// cleanupScript converts the output of `iptables -S` to input for iptables-restore that removes the cluster's rules and chains.
// It returns "" if the table has none.
func cleanupScript(table, rules string) string {
	var chains, script []string
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		if found := ownChain.FindStringSubmatch(line); found != nil {
			chains = append(chains, found[1])
			continue
		}
		from := strings.TrimPrefix(line, "-A ")
		mine := strings.HasPrefix(from, "CNI-") || strings.HasPrefix(from, "KUBE-")
		if from != line && !mine && ownRule.MatchString(line) {
			script = append(script, "-D "+from)
		}
	}
	for _, flag := range []string{"-F ", "-X "} { // flush all chains before deleting any, because they refer to each other
		for _, chain := range chains {
			script = append(script, flag+chain)
		}
	}
	if len(script) == 0 {
		return ""
	}
	return "*" + table + "\n" + strings.Join(script, "\n") + "\nCOMMIT\n"
}
