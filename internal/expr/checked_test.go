// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostForACheck limits the temporary memory of a check, in bytes. The worst expression of MaxSize
// bytes, an index per byte, needs 20 MiB.
const mostForACheck = 32 << 20

// checkedWith returns the error of a condition and the memory that the check allocated.
func checkedWith(expression string) (allocated uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = checkExpression(spoken, expression)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

// doubling is a condition whose type doubles with each of n macros.
func doubling(n int) string {
	var s, end strings.Builder
	for i := range n {
		fmt.Fprintf(&s, ".map(a%[1]d,[{a%[1]d:a%[1]d}]", i)
		end.WriteString(")")
	}
	return "[output]" + s.String() + end.String() + " == []"
}

// around returns a text with n texts before and after it.
func around(before, in, behind string, n int) string {
	return strings.Repeat(before, n) + in + strings.Repeat(behind, n)
}

func TestCheck_LimitsMemory(t *testing.T) { //nolint:paralleltest // it measures
	const deep, large = "lists, maps and macros are nested more than", "the types of its values are too large"
	for name, c := range map[string]struct{ expression, wrong string }{
		"types that double":            {doubling(5), large},
		"types that double often":      {doubling(40), deep},
		"a map of what a macro has":    {"[{output: 1}]" + around(".map(x, {x: x})", "", "", 8) + " == []", large},
		"maps in maps":                 {around("{1: ", "output", "}", 200) + " == {}", deep},
		"lists in lists":               {around("[", "output", "]", 200) + " == []", deep},
		"macros in macros":             {"input" + around(".exists(x, x", "", ")", 60), deep},
		"an index behind another":      {"input" + strings.Repeat("[0]", 200) + " == 1", ""},
		"a field behind another":       {"input" + strings.Repeat(".a", 200) + " == 1", ""},
		"a sum of many":                {"output" + strings.Repeat("+''", 200) + " == ''", ""},
		"many maps in a list":          {"[" + strings.Repeat("{},", 300) + "{1: output}] == []", ""},
		"brackets":                     {around("(", "output", ")", 200) + " == ''", ""},
		"what people ask for":          {"input.items.exists(i, i.lines.exists(l, l.price > 3.0 && l.name.startsWith('a')))", ""},
		"what people ask for at most":  {"context.tags.map(t, t.name).filter(n, n != 'x').map(n, [n, n + '!']).exists(p, p[0] in ['a', 'b'])", ""},
		"a condition with a long list": {"agent_name in [" + strings.Repeat("'agent', ", 90) + "'agent']", ""},
	} {
		t.Run(name, func(t *testing.T) {
			allocated, err := checkedWith(c.expression)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
			require.Less(t, allocated, uint64(mostForACheck))
		})
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{doubling(3), "[1].map(x, {x: x}).exists(y, y == {1: 1})", "a ? {1: b} : {c: [d]}", "input.a[0].b(c).d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if allocated, _ := checkedWith(expression); allocated > 2*mostForACheck {
			t.Errorf("%d bytes are allocated for %q", allocated, expression)
		}
	})
}
