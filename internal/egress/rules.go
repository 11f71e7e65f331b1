// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"code.dny.dev/ssrf"
	"github.com/spf13/pflag"
)

// Purpose says what a connection is for.
type Purpose string

// Purposes.
const (
	Git     Purpose = "git"
	Model   Purpose = "model"
	MCP     Purpose = "mcp"
	Webhook Purpose = "webhook"
	// Rates are exchange rates, which the platform itself asks for.
	Rates Purpose = "rates"
)

var purposes = []Purpose{Git, Model, MCP, Webhook, Rates}

// metadata are addresses of cloud metadata services in public ranges.
var metadata = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

// Flags are the operator's rules as they are written on a command line.
type Flags struct{ Allow, Deny string }

// Names of the flags.
const (
	FlagAllow = "allow-egress"
	FlagDeny  = "deny-egress"
)

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Allow, FlagAllow, "", "ranges that may be reached although they are not public, by purpose (git, model, mcp, webhook, rates): git=10.0.0.0/8,model=10.1.2.0/24")
	flags.StringVar(&f.Deny, FlagDeny, "", "ranges that are never reached, public or allowed: 203.0.113.0/24,2001:db8::/32")
}

// Args are the flags as arguments, also where they are empty: a variable of the
// environment only stands in for a flag that is not given.
func (f Flags) Args() []string {
	return []string{"--" + FlagAllow + "=" + f.Allow, "--" + FlagDeny + "=" + f.Deny}
}

// Rules reads the flags. An error says which item is wrong.
func (f Flags) Rules() (Rules, error) {
	rules := Rules{Allowed: map[Purpose][]netip.Prefix{}}
	for item := range items(f.Allow) {
		name, cidr, _ := strings.Cut(item, "=")
		prefix, err := parseRange(cidr)
		if err != nil {
			return Rules{}, fmt.Errorf("--%s: range %q is not of the form purpose=CIDR: %w", FlagAllow, item, err)
		}
		purpose := Purpose(strings.TrimSpace(name))
		if !slices.Contains(purposes, purpose) {
			return Rules{}, fmt.Errorf("--%s: range %q: purpose must be one of git, model, mcp, webhook, rates", FlagAllow, item)
		}
		rules.Allowed[purpose] = append(rules.Allowed[purpose], prefix)
	}
	for item := range items(f.Deny) {
		prefix, err := parseRange(item)
		if err != nil {
			return Rules{}, fmt.Errorf("--%s: range %q is no CIDR: %w", FlagDeny, item, err)
		}
		rules.Denied = append(rules.Denied, prefix)
	}
	return rules, nil
}

func parseRange(cidr string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
	if err == nil && prefix.Addr().Is4In6() {
		err = errors.New("write it as an IPv4 range")
	}
	return prefix.Masked(), err
}

// items are the parts of a list that are not empty.
func items(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" && !yield(item) {
				return
			}
		}
	}
}

// Rules say what may be reached: public addresses, and ranges that the operator
// allowed for a purpose, less those denied.
type Rules struct {
	Allowed map[Purpose][]netip.Prefix
	Denied  []netip.Prefix
}

// Block is a range less parts of it, all of one family.
type Block struct {
	CIDR netip.Prefix
	// Except are parts of CIDR and smaller than it.
	Except []netip.Prefix
}

// Contains says whether an address is in the block.
func (b Block) Contains(addr netip.Addr) bool {
	return b.CIDR.Contains(addr) && !contains(b.Except, addr)
}

// Blocks are all that may be reached for a purpose, or for one of several.
func (r Rules) Blocks(purposes ...Purpose) []Block {
	public := r.blocks(slices.Concat(ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes, metadata),
		netip.PrefixFrom(netip.IPv4Unspecified(), 0), ssrf.IPv6GlobalUnicast)
	for _, purpose := range purposes {
		public = append(public, r.opened(purpose)...)
	}
	return public
}

// opened are the ranges that the operator allowed for a purpose.
func (r Rules) opened(purpose Purpose) []Block { return r.blocks(nil, r.Allowed[purpose]...) }

// blocks are the ranges less special and what is denied.
func (r Rules) blocks(special []netip.Prefix, ranges ...netip.Prefix) []Block {
	var out []Block
	for _, cidr := range ranges {
		block, covered := Block{CIDR: cidr}, false
		for _, less := range slices.Concat(special, r.Denied) {
			switch {
			case !less.Overlaps(cidr):
			case less.Bits() <= cidr.Bits():
				covered = true
			case !slices.Contains(block.Except, less):
				block.Except = append(block.Except, less)
			}
		}
		if !covered {
			out = append(out, block)
		}
	}
	return out
}

func contains(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}
