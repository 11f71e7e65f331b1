// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
)

func TestFlags_NameInvalidItems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"git":                     "not of the form purpose=CIDR",
		"git=10.0.0.1":            "not of the form purpose=CIDR",
		"mail=10.0.0.0/8":         "purpose must be one of git, model, mcp, tool, webhook, telemetry, rates",
		"git=10.0.0.0/8,x":        `"x"`,
		"git=::ffff:10.0.0.0/104": "write it as an IPv4 range",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := egress.Flags{Allow: text}.Rules()
			require.ErrorContains(t, err, "--allow-egress")
			require.ErrorContains(t, err, want)
		})
	}
	for _, text := range []string{"10.0.0.1", "git=10.0.0.0/8", "10.0.0.0/8,x", "::ffff:10.0.0.0/104"} {
		_, err := egress.Flags{Deny: text}.Rules()
		require.ErrorContains(t, err, "--deny-egress")
	}
	rules, err := egress.Flags{Allow: " ,git=10.1.2.3/8,", Deny: ", 192.0.2.7/24"}.Rules()
	require.NoError(t, err)
	require.Equal(t, "10.0.0.0/8", rules.Allowed[egress.Git][0].String())
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, rules.Denied)
}

// All given values are passed on, so that none comes from the environment.
func TestFlags_ArgsPassAllValues(t *testing.T) {
	t.Parallel()
	for _, given := range []egress.Flags{{}, {Allow: "git=10.0.0.0/8,model=fd00::/8", Deny: "10.96.0.0/12"}} {
		var read egress.Flags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		read.Bind(flags)
		require.NoError(t, flags.Parse(given.Args()))
		require.Equal(t, given, read)
		flags.VisitAll(func(f *pflag.Flag) { require.True(t, f.Changed, f.Name) })
	}
}

// Denied ranges take precedence over public and allowed ones.
func TestRules_DeniedRangesTakePrecedence(t *testing.T) {
	t.Parallel()
	flags := egress.Flags{
		Allow: "git=10.0.0.0/8,model=127.0.0.0/8,git=fd00::/8",
		Deny:  "10.96.0.0/12,127.0.0.0/16,93.184.216.0/24,2606:2800::/32,fd00:1::/32",
	}
	rules, err := flags.Rules()
	require.NoError(t, err)
	guard := egress.New(rules)
	for _, address := range []string{
		"10.96.0.1:443", "127.0.0.1:1", "93.184.216.34:443", "[2606:2800::1]:443", "[fd00:1::1]:443",
		"[::ffff:10.96.0.1]:443", "[::ffff:93.184.216.34]:443",
	} {
		for _, purpose := range []egress.Purpose{egress.Git, egress.Model} {
			_, err := guard.DialContext(purpose)(t.Context(), "tcp", address)
			require.ErrorIs(t, err, egress.ErrForbidden, address)
			require.ErrorContains(t, err, "the operator denies", address)
		}
	}
	_, err = get(t, guard.Client(egress.Model, egress.ClientOptions{MaxResponse: 1}), "http://127.0.0.1:1/")
	require.ErrorIs(t, err, egress.ErrForbidden, "plain http")
}

// Blocks and rules agree for each address. Each exception is a proper part of its range, as a
// NetworkPolicy requires.
func TestRules_BlocksAgreeWithRules(t *testing.T) {
	t.Parallel()
	rules, err := egress.Flags{
		Allow: "git=10.0.0.0/8,git=fd00::/8,model=192.168.7.0/24",
		Deny:  "10.96.0.0/12,192.168.0.0/16,93.184.216.0/24,2606:2800::/32,::/128",
	}.Rules()
	require.NoError(t, err)
	for address, want := range map[string]struct{ git, model bool }{
		"10.1.2.3":        {git: true},
		"10.96.0.1":       {},
		"192.168.7.1":     {},
		"172.16.0.1":      {},
		"127.0.0.1":       {},
		"169.254.169.254": {},
		"168.63.129.16":   {},
		"93.184.216.34":   {},
		"93.184.217.34":   {git: true, model: true},
		"fd00::1":         {git: true},
		"fe80::1":         {},
		"::1":             {},
		"2606:2800::1":    {},
		"2606:4700::1":    {git: true, model: true},
	} {
		t.Run(address, func(t *testing.T) {
			require.Equal(t, want.git, reachable(rules.Blocks(egress.Git), address), "git %s", address)
			require.Equal(t, want.model, reachable(rules.Blocks(egress.Model), address), "model %s", address)
		})
	}
	for _, address := range []string{"10.1.2.3", "172.16.0.1", "8.8.8.8", "127.0.0.1"} {
		require.Equal(t, reachable(rules.Blocks(egress.Git), address) || reachable(rules.Blocks(egress.Model), address),
			reachable(rules.Blocks(egress.Git, egress.Model), address), address)
	}
	for _, purpose := range []egress.Purpose{egress.Git, egress.Model, egress.MCP, egress.Tool, egress.Webhook} {
		for _, block := range rules.Blocks(purpose) {
			for _, except := range block.Except {
				require.True(t, block.CIDR.Contains(except.Addr()) && except.Bits() > block.CIDR.Bits(), "%s less %s", block.CIDR, except)
			}
		}
	}
}

func reachable(blocks []egress.Block, address string) bool {
	for _, block := range blocks {
		if block.Contains(netip.MustParseAddr(address)) {
			return true
		}
	}
	return false
}

func FuzzFlags(f *testing.F) {
	f.Add("git=10.0.0.0/8,model=fd00::/8", "192.0.2.0/24")
	f.Fuzz(func(t *testing.T, allow, deny string) {
		rules, err := egress.Flags{Allow: allow, Deny: deny}.Rules()
		const empty = " ,\t\n\v\f\r\u0085\u00a0"
		if err == nil && strings.Trim(allow, empty) == "" && strings.Trim(deny, empty) == "" {
			require.Empty(t, rules.Allowed)
			require.Empty(t, rules.Denied)
		}
	})
}

// A developer's machine reaches services, but no metadata services.
func TestDeveloperRules_AllowsServices(t *testing.T) {
	t.Parallel()
	for address, allowed := range map[string]bool{
		"127.0.0.1": true, "10.1.2.3": true, "192.168.1.2": true, "1.1.1.1": true, "::1": true, "fd12::1": true, "2606:4700::1": true,
		"169.254.169.254": false, "168.63.129.16": false, "fd00:ec2::254": false, "fe80::1": false, "224.0.0.1": false,
	} {
		t.Run(address, func(t *testing.T) {
			blocks := egress.DeveloperRules().Blocks(egress.Tool)
			require.Equal(t, allowed, slices.ContainsFunc(blocks, func(b egress.Block) bool { return b.Contains(netip.MustParseAddr(address)) }))
		})
	}
}
