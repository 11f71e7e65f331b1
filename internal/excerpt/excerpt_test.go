// SPDX-License-Identifier: Apache-2.0

package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestOf_KeepsWholeCharactersWithinTheSize(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, mark string
		size       int
		want       string
	}{
		"fits":                 {"abc", Ellipsis, 3, "abc"},
		"cut with a mark":      {"abcdef", Ellipsis, 5, "ab…"},
		"cut without a mark":   {"abcdef", "", 5, "abcde"},
		"inside a character":   {"aéb", "", 2, "a"},
		"before the mark":      {"aééé", Ellipsis, 5, "a…"},
		"no space for a mark":  {"abcdef", Ellipsis, 2, "ab"},
		"no space":             {"abc", Ellipsis, 0, ""},
		"negative size":        {"abc", "", -1, ""},
		"long mark of a store": {"abcdefghijklmnop", " (cut)", 10, "abcd (cut)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Of(c.text, c.size, c.mark))
		})
	}
}

func FuzzOf(f *testing.F) {
	f.Add("aéb", 2, "…")
	f.Fuzz(func(t *testing.T, text string, size int, mark string) {
		got := Of(text, size, mark)
		require.True(t, got == text || len(got) <= max(size, 0))
		if utf8.ValidString(text) && utf8.ValidString(mark) {
			require.True(t, utf8.ValidString(got))
		}
		require.True(t, got == text || strings.HasPrefix(text, strings.TrimSuffix(got, mark)))
	})
}

// double counts each character twice, as a text whose characters are all escaped.
func double(r rune) int { return 2 * utf8.RuneLen(r) }

func TestEnds_LeavesOutTheMiddle(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100) + strings.Repeat("z", 100)
	for name, c := range map[string]struct {
		text  string
		size  int
		width func(rune) int
		want  string
	}{
		"fits":                {"abc", 3, nil, "abc"},
		"fits with width":     {"abc", 6, double, "abc"},
		"third and the rest":  {long, 46 + 30, nil, strings.Repeat("é", 5) + "\n[… 270 bytes left out …]\n" + strings.Repeat("z", 20)},
		"whole characters":    {long, 46 + 33, nil, strings.Repeat("é", 5) + "\n[… 268 bytes left out …]\n" + strings.Repeat("z", 22)},
		"counted by width":    {long, 2*46 + 60, double, strings.Repeat("é", 5) + "\n[… 270 bytes left out …]\n" + strings.Repeat("z", 20)},
		"no space for a mark": {long, 5, nil, "éé"},
		"negative size":       {"abc", -1, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Ends(c.text, c.size, c.width))
		})
	}
}

func FuzzEnds(f *testing.F) {
	f.Add("aéb", 2)
	f.Add(strings.Repeat("é", 100), 90)
	f.Fuzz(func(t *testing.T, text string, size int) {
		got := Ends(text, size, nil)
		require.True(t, got == text || len(got) <= max(size, 0))
		if utf8.ValidString(text) {
			require.True(t, utf8.ValidString(got))
		}
	})
}
