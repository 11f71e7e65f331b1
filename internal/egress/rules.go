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

// Purpose is the purpose of a connection.
type Purpose string

// Purposes.
const (
	Git   Purpose = "git"
	Model Purpose = "model"
	MCP   Purpose = "mcp"
	// Tool are services that HTTP and OpenAPI tools of agents call.
	Tool    Purpose = "tool"
	Webhook Purpose = "webhook"
	// Telemetry are the collectors that projects export traces to.
	Telemetry Purpose = "telemetry"
	// Rates are exchange rates, which the platform itself requests.
	Rates Purpose = "rates"
)

var purposes = []Purpose{Git, Model, MCP, Tool, Webhook, Telemetry, Rates}

// remedy returns the remedy for an address that is not allowed for a purpose.
func (r Rules) remedy(p Purpose) string {
	if r.Local {
		return "commands on your machine reach no metadata service and no link-local or multicast address; use another address"
	}
	return "the platform operator can open it for the egress purpose " + string(p)
}

// purposeNames lists the purposes for people.
var purposeNames = func() string {
	names := make([]string, len(purposes))
	for i, purpose := range purposes {
		names[i] = string(purpose)
	}
	return strings.Join(names, ", ")
}()

// metadata are addresses of cloud metadata services in public ranges.
var metadata = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

// Flags are the operator's rules as command line flags.
type Flags struct{ Allow, Deny string }

// Names of the flags.
const (
	FlagAllow = "allow-egress"
	FlagDeny  = "deny-egress"
)

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Allow, FlagAllow, "", "private CIDR ranges to allow, by purpose ("+purposeNames+"): git=10.0.0.0/8,model=10.1.2.0/24")
	flags.StringVar(&f.Deny, FlagDeny, "", "CIDR ranges to deny, even if they are public or allowed: 203.0.113.0/24,2001:db8::/32")
}

// Args returns the flags as arguments, also if they are empty, because an environment variable
// would replace a missing flag.
func (f Flags) Args() []string {
	return []string{"--" + FlagAllow + "=" + f.Allow, "--" + FlagDeny + "=" + f.Deny}
}

// Rules parses the flags. The error names the invalid item.
func (f Flags) Rules() (Rules, error) {
	rules := Rules{Allowed: map[Purpose][]netip.Prefix{}}
	for item := range listItems(f.Allow) {
		name, cidr, _ := strings.Cut(item, "=")
		prefix, err := parseRange(cidr)
		if err != nil {
			return Rules{}, fmt.Errorf("--%s: range %q is not of the form purpose=CIDR: %w", FlagAllow, item, err)
		}
		purpose := Purpose(strings.TrimSpace(name))
		if !slices.Contains(purposes, purpose) {
			return Rules{}, fmt.Errorf("--%s: range %q: purpose must be one of %s", FlagAllow, item, purposeNames)
		}
		rules.Allowed[purpose] = append(rules.Allowed[purpose], prefix)
	}
	for item := range listItems(f.Deny) {
		prefix, err := parseRange(item)
		if err != nil {
			return Rules{}, fmt.Errorf("--%s: range %q is not a CIDR range: %w", FlagDeny, item, err)
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

// listItems returns the non-empty parts of a list.
func listItems(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" && !yield(item) {
				return
			}
		}
	}
}

// Rules are the allowed addresses: public ones, and ranges that the operator allowed for a purpose,
// without the denied ones.
type Rules struct {
	Allowed map[Purpose][]netip.Prefix
	Denied  []netip.Prefix
	// Local is true on a developer's machine: no platform operator can change the rules, and the developer may know which names
	// exist in the private network.
	Local bool
}

// deviceRanges are addresses that no tool on a developer's machine needs: metadata services and other link-local addresses,
// and multicast.
var deviceRanges = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("ff00::/8"),
}

// DeveloperRules are the rules of a command on a developer's machine: public and private addresses and the machine itself, also
// over plain http, but no metadata services and no other link-local addresses.
func DeveloperRules() Rules {
	everywhere := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	rules := Rules{Allowed: map[Purpose][]netip.Prefix{}, Denied: append(slices.Clone(metadata), deviceRanges...), Local: true}
	for _, purpose := range []Purpose{Model, MCP, Tool} {
		rules.Allowed[purpose] = everywhere
	}
	return rules
}

// Block is a range without parts of it, all of one family.
type Block struct {
	CIDR netip.Prefix
	// Except are parts of CIDR and smaller than it.
	Except []netip.Prefix
}

// Contains reports whether an address is in the block.
func (b Block) Contains(addr netip.Addr) bool {
	return b.CIDR.Contains(addr) && !contains(b.Except, addr)
}

// Blocks returns the allowed blocks for one or several purposes.
func (r Rules) Blocks(purposes ...Purpose) []Block {
	public := r.blocksOf(slices.Concat(ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes, metadata),
		netip.PrefixFrom(netip.IPv4Unspecified(), 0), ssrf.IPv6GlobalUnicast)
	for _, purpose := range purposes {
		public = append(public, r.allowedBlocks(purpose)...)
	}
	return public
}

// allowedBlocks returns the ranges that the operator allowed for a purpose.
func (r Rules) allowedBlocks(purpose Purpose) []Block { return r.blocksOf(nil, r.Allowed[purpose]...) }

// blocksOf returns the ranges without special and denied parts.
func (r Rules) blocksOf(special []netip.Prefix, ranges ...netip.Prefix) []Block {
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
