// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/unsupported"
)

// promised is the page with the requirements and their tests.
const promised = "docs/designs/promises.md"

// promise is a row of it.
type promise struct {
	row, text, status string
	tests             []namedTest
}

// namedTest is a test by its file and its function, or the beginning of its description.
type namedTest struct{ file, name string }

// statuses are the allowed statuses of a row, and whether such a row must name a test. The first word of a row's status
// counts.
var statuses = map[string]bool{"WORKS": true, "REFUSED": true, "PARTIAL": false, "WRONG": false, "LATER": false}

var (
	// promiseRow is a row that is of a statement, such as 2.28b or D3.54.
	promiseRow    = regexp.MustCompile(`(?m)^\| (D?\d[\d.]*[a-z]?) \|(.*)\|$`)
	statusPattern = regexp.MustCompile("^`([A-Z]+)`(: .+)?$")
)

// promises are the rows of the page.
func promises(t *testing.T, text string) (out []promise) {
	t.Helper()
	for _, found := range promiseRow.FindAllStringSubmatch(text, -1) {
		cells := strings.Split(found[2], "|")
		require.Len(t, cells, 3, "row %s", found[1])
		p := promise{row: found[1], text: strings.TrimSpace(cells[0]), status: strings.TrimSpace(cells[1])}
		for _, test := range codePattern.FindAllStringSubmatch(cells[2], -1) {
			file, name, named := strings.Cut(test[1], ": ")
			require.True(t, named, "row %s: %s", p.row, test[1])
			p.tests = append(p.tests, namedTest{file, name})
		}
		out = append(out, p)
	}
	return out
}

// isIn says whether a file has the test.
func (n namedTest) isIn(text string) bool {
	if strings.HasPrefix(n.name, "Test") {
		return strings.Contains(text, "func "+n.name+"(t *testing.T)")
	}
	return strings.Contains(text, `"`+n.name)
}

// Each statement has one row with its status. A statement that holds or that the platform rejects has a test.
func TestPromises_HaveTests(t *testing.T) {
	t.Parallel()
	all := promises(t, page(t, promised))
	require.Greater(t, len(all), 200)
	seen := map[string]bool{}
	for _, p := range all {
		require.False(t, seen[p.row], "row %s is there twice", p.row)
		seen[p.row] = true
		require.NotEmpty(t, p.text, "row %s", p.row)
		status := statusPattern.FindStringSubmatch(p.status)
		require.NotNil(t, status, "row %s: %s", p.row, p.status)
		tested, known := statuses[status[1]]
		require.True(t, known, "row %s: %s", p.row, p.status)
		require.True(t, status[1] == "WORKS" || status[2] != "", "row %s: how is it otherwise?", p.row)
		require.True(t, !tested || len(p.tests) > 0, "row %s: which test shows it?", p.row)
		for _, test := range p.tests {
			require.True(t, test.isIn(page(t, test.file)), "row %s names %s in %s", p.row, test.name, test.file)
		}
	}
}

// Every line of a table below a heading is a row that is looked at.
func TestPromises_ReadAllRows(t *testing.T) {
	t.Parallel()
	text := page(t, promised)
	_, tables, found := strings.Cut(text, "\n## ")
	require.True(t, found)
	lines := 0
	for line := range strings.Lines(tables) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| Row |") {
			lines++
		}
	}
	require.Equal(t, lines, len(promises(t, text)), "rows of statements among the lines of tables")
}

// unsupportedEndpoint matches the path of an endpoint that returns 501.
var unsupportedEndpoint = regexp.MustCompile(`(?m)^[A-Z]+ +/\S+ (?:.* 501 )`)

// A row with the status REFUSED names something that the platform rejects, so that no row keeps this status after the
// feature was added.
func TestPromises_RefusedRowsAreUnsupported(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`\w+`)
	refused := map[string]bool{}
	for _, key := range slices.Concat(bundle.Keys(bundle.KindAgent), bundle.Keys(bundle.KindConnector), bundle.Keys(bundle.KindSuite)) {
		if name := key.Path[strings.LastIndex(key.Path, ".")+1:]; key.Unsupported {
			refused[strings.TrimSuffix(name, "[]")] = true
		}
		for _, value := range key.UnsupportedValues {
			refused[value] = true
		}
	}
	for _, folder := range bundle.UnsupportedFolders() {
		refused[folder] = true
	}
	var texts []string
	for _, location := range []unsupported.Location{unsupported.Object, unsupported.Query} {
		for _, name := range unsupported.At(location) {
			texts = append(texts, name.String())
		}
	}
	endpoints, err := os.ReadFile("../../apiserver/testdata/endpoints.txt")
	require.NoError(t, err)
	texts = append(texts, unsupportedEndpoint.FindAllString(string(endpoints), -1)...)
	for _, text := range texts {
		for _, word := range words.FindAllString(text, -1) {
			refused[word] = true
		}
	}
	for _, p := range promises(t, page(t, promised)) {
		if !strings.Contains(p.status, "`REFUSED`") {
			continue
		}
		named := codePattern.FindAllStringSubmatch(p.text+p.status, -1)
		require.True(t, slices.ContainsFunc(named, func(code []string) bool { return refused[code[1]] }),
			"row %s: the platform rejects nothing that it names in code (internal/unsupported, packages bundle and apiserver)", p.row)
	}
}
