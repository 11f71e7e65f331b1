// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// A build checks the function of a script that is a step, with positions.
func TestSteps_CheckScripts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ step, source, problem string }{
		"valid":          {"{script: steps.enrich.run, as: facts, input: input.a, when: input.b}", "def run(input, steps, context):\n    return 1\n", ""},
		"no parameters":  {"{script: steps.enrich.run}", "def run():\n    return 1\n", ""},
		"default":        {"{script: steps.enrich.run}", "def run(steps, input = None):\n    return 1\n", ""},
		"in a folder":    {"{script: steps.a.enrich.run}", "", `agents/a.yaml:4:6: "steps.a.enrich.run" needs the script steps/a/enrich.star, which does not exist`},
		"no function":    {"{script: steps.enrich.go}", "def run(input):\n    return 1\n", `agents/a.yaml:4:6: "steps.enrich.go": steps/enrich.star has no function go; it has run`},
		"parameter":      {"{script: steps.enrich.run}", "\ndef run(input, order):\n    return 1\n", `steps/enrich.star:2:5: run cannot have the parameter order; the function of a step has any of input, steps, context`},
		"star":           {"{script: steps.enrich.run}", "def run(**kwargs):\n    return 1\n", `steps/enrich.star:1:5: run cannot have the parameter **; the function of a step has any of input, steps, context`},
		"tool":           {"{script: orders.find}", "", `agents/a.yaml:4:6: "orders.find" is not the function of a step; write steps.file.function for a function of steps/file.star`},
		"wildcard":       {"{script: steps.enrich.*}", "", `agents/a.yaml:4:6: "steps.enrich.*" is not the function of a step; write steps.file.function for a function of steps/file.star`},
		"arguments":      {"{script: steps.enrich.run, with: {a: '1'}}", "def run(input):\n    return 1\n", `agents/a.yaml:4:32: "steps[0].with" has no effect here; a script gets "input" and the results so far`},
		"shared history": {"{script: steps.enrich.run, share_history: true}", "def run(input):\n    return 1\n", `agents/a.yaml:4:32: "steps[0].share_history" has no effect here; a script has no conversation`},
		"broken script":  {"{script: steps.enrich.run}", "def run(input):\n    return x\n", "steps/enrich.star:2:12: undefined: x"},
		"in parallel":    {"parallel: [{script: steps.enrich.go, as: b}, {script: steps.enrich.run, as: c}]", "def run(input):\n    return 1\n", `agents/a.yaml:4:17: "steps.enrich.go": steps/enrich.star has no function go; it has run`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := bundle.Files{"agents/a.yaml": []byte("name: a\ntype: sequential\nsteps:\n  - " + row.step + "\noutput: input\n")}
			if row.source != "" {
				files["steps/enrich.star"] = []byte(row.source)
			}
			_, err := bundle.Parse(files)
			if row.problem == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.problem)
		})
	}
}
