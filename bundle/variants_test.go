// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

const shortAgent = "name: brief\nmodel: openai/x\n"

func TestVariants(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(files(
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
	require.Equal(t, []string{"greeter", "greeter", "nobody"}, []string{p.RunsOf("greeter"), p.RunsOf("brief"), p.RunsOf("nobody")})
	require.Empty(t, p.Agent("no-variant").VariantOf)

	require.Equal(t, 3, greeter.MaxConcurrentRuns)
	require.NotNil(t, greeter.Concurrency)
	require.Zero(t, brief.MaxConcurrentRuns, "defaults that are for the base are left out")
	require.Nil(t, brief.Concurrency)
	require.Equal(t, 7, brief.MaxIterations, "others are not")
	require.NotContains(t, string(brief.Config()), "concurrency")
}

// lotsOfVariants is an agent with so many variants.
func lotsOfVariants(n int) bundle.Files {
	var (
		shares strings.Builder
		pairs  []string
	)
	for i := range n {
		fmt.Fprintf(&shares, "  v%d: 1\n", i)
		pairs = append(pairs, fmt.Sprintf("agents/a-test-v%d.yaml", i), fmt.Sprintf("name: n%d\nmodel: openai/x\n", i))
	}
	return files(append(pairs, "agents/a.yaml", okAgent+"variants:\n"+shares.String())...)
}

// variantProblems are repositories at fault with all that is said of them.
var variantProblems = map[string]struct {
	files bundle.Files
	want  []string
}{
	"no base": {
		files("agents/load-test-it.yaml", okAgent),
		[]string{`agents/load-test-it.yaml: is named like a variant of agents/load.yaml, which is not there; rename it if it is not a variant`},
	},
	"not named": {
		files("agents/a.yaml", okAgent, "agents/a-test-short.yaml", shortAgent),
		[]string{`agents/a-test-short.yaml: is a variant that the "variants" of agents/a.yaml do not name, so that it would never run; write variants: {short: 10} there, or remove this file`},
	},
	"named without a share": {
		files("agents/a.yaml", okAgent+"variants: {short: }\n", "agents/a-test-short.yaml", shortAgent),
		[]string{
			`agents/a-test-short.yaml: is a variant that the "variants" of agents/a.yaml do not name, so that it would never run; write variants: {short: 10} there, or remove this file`,
			`agents/a.yaml:3:1: "variants" names none; remove it`,
		},
	},
	"unknown": {
		files("agents/x/a.yaml", okAgent+"variants:\n  short: 10\n  lnog: 5\n  __base__: 85\n", "agents/x/a-test-short.yaml", shortAgent),
		[]string{
			`agents/x/a.yaml:5:3: variant "lnog" needs the file agents/x/a-test-lnog.yaml, which is not there; write it or remove the entry`,
			`agents/x/a.yaml:6:3: the agent itself executes what its variants leave of 100; remove the entry "__base__"`,
		},
	},
	"shares": {
		files("agents/a.yaml", okAgent+"variants: {short: -1, long: 101}\n", "agents/a-test-short.yaml", shortAgent, "agents/a-test-long.yaml", "name: long\nmodel: openai/x\n",
			"agents/b.yaml", "name: b\nmodel: openai/x\nvariants: {c: half}\n", "agents/b-test-c.yaml", "name: c\nmodel: openai/x\n"),
		[]string{
			`agents/a.yaml:3:12: "variants.short" is a percentage of the runs, between 0 and 100, not -1`,
			`agents/a.yaml:3:23: "variants.long" is a percentage of the runs, between 0 and 100, not 101`,
			`agents/b.yaml:3:15: "variants.c" must be a whole number, not text`,
		},
	},
	"more than all": {
		files("agents/a.yaml", okAgent+"variants: {short: 60, long: 41}\n", "agents/a-test-short.yaml", shortAgent, "agents/a-test-long.yaml", "name: long\nmodel: openai/x\n"),
		[]string{`agents/a.yaml:3:1: "variants" are percentages of the runs, at most 100 together, not 101`},
	},
	"none": {
		files("agents/a.yaml", okAgent+"variants: {}\n"),
		[]string{`agents/a.yaml:3:1: "variants" names none; remove it`},
	},
	"too many": {
		lotsOfVariants(21),
		[]string{`agents/a.yaml:3:1: an agent has at most 20 variants`},
	},
	"name": {
		files("agents/a.yaml", okAgent+"variants: {B: 10}\n", "agents/a-test-B.yaml", shortAgent),
		[]string{`agents/a-test-B.yaml: a variant's name, what follows "-test-", is at most 63 lower-case letters, digits and inner dashes, not "B"`},
	},
	"keys of the base": {
		files("agents/a.yaml", okAgent+"variants: {b: 10}\n", "agents/a-test-b.yaml", shortAgent+"variants: {c: 1}\nmax_concurrent_runs: 1\nconcurrency: {key: input.id}\nsession: {key: input.id}\nfiles_required: true\n"),
		[]string{
			`agents/a-test-b.yaml:3:1: "variants" is for the runs of agent "ok", whichever variant executes them; write it in agents/a.yaml`,
			`agents/a-test-b.yaml:4:1: "max_concurrent_runs" is for the runs of agent "ok", whichever variant executes them; write it in agents/a.yaml`,
			`agents/a-test-b.yaml:5:1: "concurrency" is for the runs of agent "ok", whichever variant executes them; write it in agents/a.yaml`,
			`agents/a-test-b.yaml:6:1: "session" is for the runs of agent "ok", whichever variant executes them; write it in agents/a.yaml`,
		},
	},
	"in defaults": {
		files("agents/_defaults.yaml", "variants: {b: 10}\n", "agents/a.yaml", okAgent),
		[]string{`agents/_defaults.yaml:1:1: defaults cannot hold variants; each agent has its own`},
	},
	"named by others": {
		files("agents/a.yaml", okAgent+"variants: {b: 10}\n", "agents/a-test-b.yaml", shortAgent,
			"agents/s.yaml", "name: s\ntype: sequential\nagents: [ok, brief]\n",
			"connectors/c.yaml", "type: webhook\nmode: inbound\nagents: [brief]\n",
			"connectors/d.yaml", "type: webhook\nmode: inbound\nlinks: [{agent: brief}]\n"),
		[]string{
			`agents/s.yaml:3:1: agent "brief" is an A/B variant, which executes its share of the runs of "ok"; name that one`,
			`connectors/c.yaml:3:1: agent "brief" is an A/B variant, which executes its share of the runs of "ok"; name that one`,
			`connectors/d.yaml:3:1: agent "brief" is an A/B variant, which executes its share of the runs of "ok"; name that one`,
		},
	},
}

func TestProblemsOfVariants(t *testing.T) {
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
