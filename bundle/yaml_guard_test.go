// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
)

// costlyFiles returns files of n bytes that repeat one construct.
func costlyFiles(n int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, n/len(s)) }
	generate := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < n-40; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	deeper := func(line string) string {
		var b strings.Builder
		for i := 0; b.Len() < n-800; i++ {
			b.WriteString(strings.Repeat(" ", i) + line + "\n")
		}
		return b.String()
	}
	return map[string]string{
		"flow open": fill("["), "flow map open": fill("{a: "), "one line maps": fill("a: "), "question": fill("? "),
		"dashes": fill("- "), "quotes": "a: \"" + fill("\\u0041"), "single quote": "a: '" + fill("''"),
		"block scalar": "a: |\n" + fill("  x\n"), "folded": "a: >\n" + fill("  x\n\n"),
		"keys": generate("k%d: 1\n"), "comments": fill("#\n"), "comment lines": "a: 1\n" + fill(" # x\n"),
		"indent": deeper("a:"), "indented list": deeper("-"),
		"anchors": generate("a%d: &a [x]\n"), "merge": "a: &a {x: 1}\nb:\n" + fill("  <<: *a\n"),
		"tags": fill("!!a "), "docs": fill("---\n"), "colon": fill(":"), "tabs": fill("\t"), "cr": fill("\r"),
		"plain": "a: " + fill("x "), "plain multiline": "a:\n" + fill("  x\n"), "percent": fill("%YAML 1.2\n"),
		"star": fill("*a "), "amp": fill("&a "), "flow seq": "a: [" + fill("1,"), "flow seq closed": "a: [" + fill("1,") + "]",
		"flow nested": "a: [" + strings.Repeat(strings.Repeat("[", 60)+strings.Repeat("]", 60)+",", n/122) + "]",
		"flow keys":   "a: {" + generate("k%d: 1, ") + "}", "flow keys lines": "a: {\n" + generate("  k%d: 1,\n") + "}",
		"list of maps": generate("- a: %d\n  b: 1\n"), "deep keys": "a:\n  b:\n" + generate("    k%d: 1\n"),
		"list items": generate("- %d\n"), "aliases in list": "a: &a 1\nb: [" + fill("*a,") + "]", "alias lines": "a: &a 1\nb:\n" + fill("- *a\n"),
		"quoted keys": generate("\"k%d\": 1\n"), "question keys": generate("? k%d\n: 1\n"), "pairs": "a: [" + generate("k%d: 1, ") + "]",
		"quoted words": fill("\"a\" "), "single words": fill("'a' "), "json line": "{\"a\": [" + fill("{\"k\": \"v\"},") + "]}",
		"pipes": fill("| "), "greater": fill("> "), "commas": fill(","), "braces": fill("}"), "brackets": fill("]"), "mixed": fill("[}"),
		"at": fill("@ "), "backtick": fill("` "), "ats": "a: " + fill("@"), "blank lines": "a: 1\n" + fill("\n") + "b: 2\n", "crlf": generate("k%d: 1\r\n"),
		"comment tail": generate("k%d: 1 # c\n"), "tag lines": generate("k%d: !!str 1\n"), "anchor lines": generate("k%d: &x%[1]d 1\n"),
		"merge flow": "a: &a {x: 1}\nb: {" + fill("<<: *a, ") + "}", "multi docs": fill("a: 1\n---\n"), "ends": fill("...\n"),
		"bom": fill("\ufeff"), "nul": fill("\x00"), "wide": fill("é: "), "folded deep": "a: >-\n" + fill("   x\n x\n"), "empty flow": fill("{}"), "empty lists": fill("[]"),
		"multi quoted": "a: \"" + fill("x\n"), "multi single": "a: '" + fill("x\n"), "dash colon": fill("- a:\n"), "null keys": fill(": \n"), "spaces": fill(" "), "dash dash": fill("-\n"),
		"numbers": "a: " + fill("9"), "floats": generate("k%d: 1.5e300\n"), "hex": "a: 0x" + fill("f"), "under": "a: 1" + fill("_"),
	}
}

// parseWithMemory returns the problems of a text and checks the bytes that the parser allocates.
func parseWithMemory(t *testing.T, most uint64, text, name string) Problems {
	t.Helper()
	var problems Problems
	memtest.AtMost(t, most, func() {
		problems = nil
		parseYAML("f.yaml", []byte(text), &problems)
	}, name)
	return problems
}

// allowedBytes returns the maximum number of bytes that the parser may allocate: 1 KiB for each byte of the file.
func allowedBytes(text string) uint64 { return 1<<20 + 1<<10*uint64(len(text)) }

// The cost of the parser grows with the size of a file, not with its square. The test is not parallel, because it counts the
// allocations of the process.
func TestParseYAML_LimitsMemory(t *testing.T) {
	for name, text := range costlyFiles(MaxYAMLSize) {
		_ = parseWithMemory(t, allowedBytes(text), text[:min(len(text), MaxYAMLSize)], name)
	}
	for name, text := range costlyFiles(4 * MaxYAMLSize) {
		problems := parseWithMemory(t, 1<<20, text, name)
		require.Contains(t, problems.Error(), "at most 65536 are allowed", name)
	}
}

func TestParseYAML_ReportsLimits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a:\n" + repeatLine("  k%d: 1\n", maxKeys+1):                     "f.yaml:1002:8: more than 1000 keys in one map",
		"a: {" + repeatLine("k%d: 1,", maxKeys+1) + "}":                  "more than 1000 keys in one map",
		"a: &a 1\nb:\n" + strings.Repeat("- *a\n", maxReferences):        "f.yaml:1002:3: more than 1000 anchors and aliases",
		strings.Repeat("a: ", 20) + "1\n":                                "f.yaml:1:50: more than 16 keys in one line",
		strings.Repeat("- ", 70) + "1\n":                                 "nested deeper than 64 levels",
		"a: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "\n": "nested deeper than 64 levels",
		"a: 1\n---\nb: 1\n---\nc: 1\n":                                   "second document; a file holds one",
		"---\na: 1\n" + strings.Repeat("x", MaxYAMLSize):                 "at most 65536 are allowed",
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			var problems Problems
			require.Nil(t, parseYAML("f.yaml", []byte(text), &problems))
			require.Contains(t, problems.Error(), want)
		})
	}
}

// The limits apply to one map, one line or one file.
func TestParseYAML_AcceptsUsualFiles(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"many maps":      repeatLine("- a: %d\n  b: {c: 1, d: 2}\n", 1500),
		"maps of maps":   repeatLine("k%d:\n  a: 1\n  b: 2\n  c: 3\n", maxKeys),
		"list in a map":  "steps:\n" + repeatLine("- text: %d\n", 3000),
		"deeper lists":   "steps:\n" + repeatLine("  - text: %d\n    tokens: {input: 1}\n", 1500),
		"one long list":  "a: [" + repeatLine("%d, ", 5000) + "]",
		"json":           "{\"a\": [" + repeatLine("{\"k\": %d, \"l\": 1},", 2500) + "{}]}",
		"a long text":    "a: |\n" + repeatLine("  line %d: of text\n", 2500),
		"header":         "---\na: 1\n",
		"header and end": "---\na: 1\n...\n",
		"some aliases":   "a: &a [1]\nb:\n" + strings.Repeat("- *a\n", 900),
	} {
		t.Run(name, func(t *testing.T) {
			var problems Problems
			require.NotNil(t, parseYAML("f.yaml", []byte(text), &problems), "%v", problems)
		})
	}
}

func repeatLine(format string, times int) string {
	var b strings.Builder
	for i := range times {
		fmt.Fprintf(&b, strings.ReplaceAll(format, "%d", "%[1]d"), i)
	}
	return b.String()
}

// FuzzYAML looks for files that are costly to parse.
func FuzzYAML(f *testing.F) {
	for _, text := range costlyFiles(2048) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range parseWithMemory(t, allowedBytes(text), text, "fuzzed") {
			require.NotEmpty(t, p.Message)
			require.Positive(t, p.Line)
		}
	})
}
