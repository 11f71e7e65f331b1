// SPDX-License-Identifier: Apache-2.0

package pattern_test

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// The estimate is close to the compiled size.
func TestCompile_EstimatesSize(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "a", "abc", "a|b", "ab|cd|ef", "a*", "a+", "a?", "(a)", "(?:ab){10}", "(?:ab){3,}", "(?:ab){0,}", "a{0,50}", "(a{10}){20}", "[a-z]+\\d{3,9}$",
		"(?i)parcel|delivery|late", "^(?P<name>.+)$", "(?:){900}", "a{998}",
	} {
		compiled, size, err := pattern.Compile(text)
		require.NoError(t, err, text)
		require.NotNil(t, compiled, text)
		parsed, err := syntax.Parse(text, syntax.Perl)
		require.NoError(t, err, text)
		made, err := syntax.Compile(parsed.Simplify())
		require.NoError(t, err, text)
		require.GreaterOrEqual(t, size+4, len(made.Inst), text)
	}
}

func TestCompile_RejectsLargePatterns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"(":                                    "missing closing )",
		"a{1001}":                              "invalid repeat count",
		"a{1000}b":                             "more than 1000 instructions",
		"(?:ab){999}":                          "more than 1000 instructions",
		"(?:ab){999,}":                         "more than 1000 instructions",
		"a{0,900}":                             "more than 1000 instructions",
		strings.Repeat("a{1000}", 146):         "more than 1000 instructions",
		strings.Repeat(`\p{L}`, 100):           "more than 1000 instructions",
		strings.Repeat("a", pattern.MaxText+1): "more than 1024 bytes",
		strings.Repeat("((((a{10}){10})){9})", 9): "more than 1000 instructions",
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			_, _, err := pattern.Compile(text)
			require.ErrorContains(t, err, want, text)
		})
	}
}
