// SPDX-License-Identifier: Apache-2.0

package displayname

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Every character is judged as its Unicode properties have it, alone, within a name and at its ends.
func TestProblem_JudgesEveryCharacter(t *testing.T) {
	t.Parallel()
	for r := range rune(unicode.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		c := string(r)
		hidden := unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || r == '\uFEFF'
		ends := hidden || unicode.IsSpace(r)
		for _, name := range []string{c, c + "a", "a" + c} {
			if (Problem(name) != "") != ends {
				t.Fatalf("%+q: %q", name, Problem(name))
			}
		}
		if name := "a" + c + "b"; (Problem(name) != "") != hidden {
			t.Fatalf("%+q: %q", name, Problem(name))
		}
	}
}

func TestProblem_NamesTheFault(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "blank", " \t": "blank", " a": "white space", "a\u00a0": "white space", "a\nb": "line breaks", "a\u202eb": "direction",
		" a\x00b": "control characters",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, Problem(name), want)
		})
	}
	require.Empty(t, Problem(strings.Repeat("日本 ", 20)+"é"))
}
