// SPDX-License-Identifier: Apache-2.0

package displayname

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// showNothing are letters and symbols that show nothing: fillers of Hangul, vowels of Khmer and the blank of Braille.
const showNothing = "\u115F\u1160\u17B4\u17B5\u2800\u3164\uFFA0"

// Each character is judged by its Unicode properties: alone, inside a name and at its ends.
func TestProblem_JudgesEveryCharacter(t *testing.T) {
	t.Parallel()
	for r := range rune(unicode.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		c := string(r)
		invisible := unicode.Is(unicode.Variation_Selector, r) || strings.ContainsRune("\u034F\u00AD\u200B\uFEFF"+showNothing, r) || r >= 0x2060 && r <= 0x206F || r >= 0xFFF9 && r <= 0xFFFB || r >= 0xE0000 && r <= 0xE007F
		hidden := invisible || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
		ends := hidden || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
		for _, name := range []string{c, c + "a"} {
			if (Problem(name) != "") != ends {
				t.Fatalf("%+q: %q", name, Problem(name))
			}
		}
		if name := "a" + c; (Problem(name) != "") != ends {
			t.Fatalf("%+q: %q", name, Problem(name))
		}
		if name := "a" + c + "b"; (Problem(name) != "") != hidden {
			t.Fatalf("%+q: %q", name, Problem(name))
		}
	}
}

func TestProblem_NamesTheFault(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "blank", " \t": "blank", "\u200b": "blank", " \u200d\u2060": "blank", "\u3164": "blank", "\ufe0f": "blank", "prod\u3164": "invisible", "\ufe0fprod": "invisible", "prod\ufe0f": "invisible", "pro\U000E0100d": "invisible", "prod+\ufe0f": "invisible", "\u2764\ufe0f\ufe0f": "invisible", "1\ufe0f": "invisible", "\u2800\ufe0f": "blank",
		"pro\u200bd": "invisible", " a": "white space", "a\u00a0": "white space", "a\nb": "line breaks", "a\u202eb": "direction",
		" a\x00b": "control characters",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, Problem(name), want)
		})
	}
	require.Empty(t, Problem("\U0001F469\u200D\U0001F4BB"), "an emoji of two")
	require.Empty(t, Problem("\u2764\uFE0F"), "an emoji with a variation selector")
	require.Empty(t, Problem("a \u2764\uFE0F\u200D\U0001F525 b"), "an emoji of two with a variation selector")
	require.Empty(t, Problem("step 1\uFE0F\u20E3"), "a keycap")
	require.Empty(t, Problem("\u1820\u180B\u1820"), "a Mongolian letter with a variation selector")
	require.Empty(t, Problem(strings.Repeat("日本 ", 20)+"é"))
}
