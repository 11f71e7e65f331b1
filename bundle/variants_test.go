// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

const shortVariant = "name: brief\nmodel: openai/x\n"

func TestParse_LinksVariants(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
		"agents/_defaults.yaml", "max_concurrent_runs: 3\nconcurrency: {key: input.id}\nmax_iterations: 7\n",
		"agents/a/greet.yaml", "name: greeter\nmodel: openai/a\nvariants: {short: 10, \"2\": 0, gone: null}\n",
		"agents/a/greet-test-short.yaml", "name: brief\nmodel: openai/b\ntimeout: 5\n",
		"agents/a/greet-test-2.yaml", "name: second\ntype: sequential\nagents: [greeter, greeter]\n",
		"agents/b/greet.yaml", "name: other\nmodel: openai/a\n",
		"agents/b/-test-x.yaml", "name: no-variant\nmodel: openai/a\n",
		"tests/a.yaml", "agent: brief\ncases: [{name: a, payload: x}]\n",
	))
	require.NoError(t, err)
	greeter, brief := p.Agent("greeter"), p.Agent("brief")
	require.Equal(t, map[string]int{"short": 10, "2": 0}, greeter.Variants)
	require.Empty(t, greeter.VariantOf)
	require.Equal(t, []string{"greeter", "short"}, []string{brief.VariantOf, brief.TestName})
	require.Equal(t, brief, p.Variant("greeter", "short"))
	require.Equal(t, p.Agent("second"), p.Variant("greeter", "2"))
	require.Nil(t, p.Variant("greeter", "long"))
	require.Nil(t, p.Variant("other", "short"))
	require.Equal(t, []string{"greeter", "greeter", "nobody"}, []string{p.BaseName("greeter"), p.BaseName("brief"), p.BaseName("nobody")})
	require.Empty(t, p.Agent("no-variant").VariantOf)

	require.Equal(t, 3, greeter.MaxConcurrentRuns)
	require.NotNil(t, greeter.Concurrency)
	require.Zero(t, brief.MaxConcurrentRuns, "defaults that are for the base are left out")
	require.Nil(t, brief.Concurrency)
	require.Equal(t, 7, brief.MaxIterations, "others are not")
	require.NotContains(t, string(brief.Config()), "concurrency")
}

// lotsOfVariants returns an agent with n variants.
func lotsOfVariants(n int) bundle.Files {
	var (
		shares strings.Builder
		pairs  []string
	)
	for i := range n {
		fmt.Fprintf(&shares, "  v%d: 1\n", i)
		pairs = append(pairs, fmt.Sprintf("agents/a-test-v%d.yaml", i), fmt.Sprintf("name: n%d\nmodel: openai/x\n", i))
	}
	return newFiles(append(pairs, "agents/a.yaml", okAgent+"variants:\n"+shares.String())...)
}

// variantProblems are invalid repositories, each with all its problems.
var variantProblems = map[string]struct {
	files bundle.Files
	want  []string
}{
	"no base": {
		newFiles("agents/load-test-it.yaml", okAgent),
		[]string{`agents/load-test-it.yaml: has the name of a variant of agents/load.yaml, which does not exist; rename it if it is not a variant`},
	},
	"not named": {
		newFiles("agents/a.yaml", okAgent, "agents/a-test-short.yaml", shortVariant),
		[]string{`agents/a-test-short.yaml: this variant never runs, because the "variants" of agents/a.yaml do not name it; write variants: {short: 10} there, or remove this file`},
	},
	"named without a share": {
		newFiles("agents/a.yaml", okAgent+"variants: {short: }\n", "agents/a-test-short.yaml", shortVariant),
		[]string{
			`agents/a-test-short.yaml: this variant never runs, because the "variants" of agents/a.yaml do not name it; write variants: {short: 10} there, or remove this file`,
			`agents/a.yaml:3:1: "variants" is empty; remove it`,
		},
	},
	"unknown": {
		newFiles("agents/x/a.yaml", okAgent+"variants:\n  short: 10\n  lnog: 5\n  __base__: 85\n", "agents/x/a-test-short.yaml", shortVariant),
		[]string{
			`agents/x/a.yaml:5:3: variant "lnog" needs the file agents/x/a-test-lnog.yaml, which does not exist; add it or remove the entry`,
			`agents/x/a.yaml:6:3: the agent itself executes the rest of the runs; remove the entry "__base__"`,
		},
	},
	"shares": {
		newFiles("agents/a.yaml", okAgent+"variants: {short: -1, long: 101}\n", "agents/a-test-short.yaml", shortVariant, "agents/a-test-long.yaml", "name: long\nmodel: openai/x\n",
			"agents/b.yaml", "name: b\nmodel: openai/x\nvariants: {c: half}\n", "agents/b-test-c.yaml", "name: c\nmodel: openai/x\n"),
		[]string{
			`agents/a.yaml:3:12: "variants.short" must be a percentage between 0 and 100`,
			`agents/a.yaml:3:23: "variants.long" must be a percentage between 0 and 100`,
			`agents/b.yaml:3:15: "variants.c" must be a whole number, not text`,
		},
	},
	"more than all": {
		newFiles("agents/a.yaml", okAgent+"variants: {short: 60, long: 41}\n", "agents/a-test-short.yaml", shortVariant, "agents/a-test-long.yaml", "name: long\nmodel: openai/x\n"),
		[]string{`agents/a.yaml:3:1: "variants" must add up to at most 100 percent, not 101`},
	},
	"none": {
		newFiles("agents/a.yaml", okAgent+"variants: {}\n"),
		[]string{`agents/a.yaml:3:1: "variants" is empty; remove it`},
	},
	"too many": {
		lotsOfVariants(21),
		[]string{`agents/a.yaml:3:1: an agent has at most 20 variants`},
	},
	"name": {
		newFiles("agents/a.yaml", okAgent+"variants: {B: 10}\n", "agents/a-test-B.yaml", shortVariant),
		[]string{`agents/a-test-B.yaml: the name of a variant, which follows "-test-", must be at most 63 lower-case letters, digits and inner dashes`},
	},
	"keys of the base": {
		newFiles("agents/a.yaml", okAgent+"variants: {b: 10}\n", "agents/a-test-b.yaml", shortVariant+"variants: {c: 1}\nmax_concurrent_runs: 1\nconcurrency: {key: input.id}\nsession: {key: input.id}\nfiles_required: true\n"),
		[]string{
			`agents/a-test-b.yaml:3:1: "variants" applies to all runs of agent "ok"; move it to agents/a.yaml`,
			`agents/a-test-b.yaml:4:1: "max_concurrent_runs" applies to all runs of agent "ok"; move it to agents/a.yaml`,
			`agents/a-test-b.yaml:5:1: "concurrency" applies to all runs of agent "ok"; move it to agents/a.yaml`,
			`agents/a-test-b.yaml:6:1: "session" applies to all runs of agent "ok"; move it to agents/a.yaml`,
		},
	},
	"in defaults": {
		newFiles("agents/_defaults.yaml", "variants: {b: 10}\n", "agents/a.yaml", okAgent),
		[]string{`agents/_defaults.yaml:1:1: defaults cannot have "variants"; each agent has its own`},
	},
	"named by others": {
		newFiles("agents/a.yaml", okAgent+"variants: {b: 10}\n", "agents/a-test-b.yaml", shortVariant,
			"agents/s.yaml", "name: s\ntype: sequential\nagents: [ok, brief]\n",
			"connectors/c.yaml", "type: webhook\nmode: inbound\nagents: [brief]\n",
			"connectors/d.yaml", "type: webhook\nmode: inbound\nlinks: [{agent: brief}]\n"),
		[]string{
			`agents/s.yaml:3:1: agent "brief" is an A/B variant, which executes its share of the runs of "ok"; name that agent`,
			`connectors/c.yaml:3:1: agent "brief" is an A/B variant, which executes its share of the runs of "ok"; name that agent`,
			`connectors/d.yaml:3:1: agent "brief" is an A/B variant, which executes its share of the runs of "ok"; name that agent`,
		},
	},
}

func TestParse_ReportsVariantProblems(t *testing.T) {
	t.Parallel()
	for name, c := range variantProblems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(c.files)
			require.EqualError(t, err, strings.Join(c.want, "\n"))
		})
	}
	_, err := bundle.Parse(lotsOfVariants(20))
	require.NoError(t, err)
}
