// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/agentplatform/agentplatform/"

// page returns the text of a page.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// sources returns the paths of a folder's Go files from the root, without tests and test helpers.
func sources(t *testing.T, folder string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, at)
		if err != nil || !d.IsDir() {
			if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				out = append(out, name)
			}
			return err
		}
		if slices.Contains([]string{"internal/testenv", "store/storetest", "controllers/controllertest", "apiserver/apiservertest"}, name) {
			return fs.SkipDir
		}
		return nil
	}))
	require.NotEmpty(t, out, folder)
	return out
}

// imports returns the packages of the repository that a file imports, by their paths from the root.
func imports(t *testing.T, file string) (out []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, i := range parsed.Imports {
		if below, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ours {
			out = append(out, below)
		}
	}
	return out
}

// folderRow is a row of the table of folders. Its last cell lists the imports.
var folderRow = regexp.MustCompile("(?m)^\\| (`[a-z0-9/]+/`) \\|.*\\| ([^|]*) \\|$")

// The table of folders lists exactly the packages that each folder imports.
func TestFolders_ListTheirImports(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, row := range folderRow.FindAllStringSubmatch(page(t, "CONTRIBUTING.md"), -1) {
		folder, _, _ := strings.Cut(strings.Trim(row[1], "`"), "/")
		if row[2] == "all" {
			continue
		}
		said, imported := []string{}, map[string]bool{}
		for _, name := range codePattern.FindAllStringSubmatch(row[2], -1) {
			said = append(said, name[1])
		}
		for _, file := range sources(t, folder) {
			for _, name := range imports(t, file) {
				other, _, _ := strings.Cut(name, "/")
				imported[other] = other != folder
			}
		}
		for other, isOther := range imported {
			require.Equal(t, isOther, slices.Contains(said, other), "%s and %s", folder, other)
		}
		for _, other := range said {
			require.True(t, imported[other], "%s does not import %s", folder, other)
		}
		tried++
	}
	require.Equal(t, 9, tried, "folders whose imports the table has")
}

// A package of the store imports only packages of the rows above it in the table of layers, which
// lists each package once.
func TestStoreLayers_ImportRowsAbove(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(page(t, "docs/designs/architecture.md"), "| Packages of `store/` | Contents |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]int{}
	for n, row := range strings.Split(table, "\n") {
		for _, name := range codePattern.FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			require.NotContains(t, rows, name[1])
			rows[name[1]] = n
		}
	}
	found := map[string]bool{}
	for _, file := range sources(t, "store") {
		of := path.Base(path.Dir(file))
		require.Contains(t, rows, of, "the table lacks the package of %s", file)
		found[of] = true
		for _, name := range imports(t, file) {
			if other := path.Base(name); path.Dir(name) == "store" || name == "store" {
				require.Contains(t, rows, other, file)
				require.Less(t, rows[other], rows[of], "%s imports store/%s, which is in no row above it", file, other)
			}
		}
	}
	require.Len(t, found, len(rows), "each package of the table exists")
}

// ofModes matches code for a mode of connectors: its constants, its name in texts, and comparisons.
var ofModes = regexp.MustCompile(`\b[mM]ode(Inbound|Sync|Outbound)\b|\bconnector\.(Inbound|Sync|Outbound|Cron)\b|\binbound\b` +
	`|[mM]ode [!=]= "(inbound|sync|outbound)"|\bmode (=|<>|IN) \(?'(inbound|sync|outbound)'`)

// speakOfModes lists files that mention a mode without code for it, with the reason.
var speakOfModes = map[string]string{
	"apiserver/agents/agents.go":               "the text of a field that has the mode in its name",
	"apiserver/connectors/connector_create.go": "the default",
	"apiserver/connectors/connectors.go":       "the text of a field",
	"bundle/connector.go":                      "an example",
	"connector/crd/crd.go":                     "the default",
	"internal/restclient/client.gen.go":        "generated from docs/openapi.json",
	"store/claim.go":                           "a class of runs, which one of another mode may have too",
	"store/run_selection.go":                   "classes of runs",
}

// The recipe for a connector mode names every file with code for modes. Few files have any: the others ask a kind for its facts.
func TestModeRecipe_NamesEveryFile(t *testing.T) {
	t.Parallel()
	_, recipe, found := strings.Cut(page(t, "CONTRIBUTING.md"), "### Add a connector mode")
	require.True(t, found)
	recipe, _, _ = strings.Cut(recipe, "\n##")
	places := 0
	for _, folder := range []string{"api", "apiserver", "bundle", "cmd", "connector", "controllers", "internal", "runner", "store", "webhookgw"} {
		for _, file := range sources(t, folder) {
			if speakOfModes[file] != "" || !ofModes.MatchString(page(t, file)) {
				continue
			}
			places++
			whole := strings.Contains(recipe, "`"+file+"`")
			inFolder := strings.Contains(recipe, "`"+path.Base(file)+"`") && strings.Contains(recipe, "`"+path.Dir(file)+"/")
			require.True(t, whole || inFolder, "%s knows the modes", file)
		}
	}
	require.LessOrEqual(t, places, 8)
	require.Greater(t, places, 3)
}

// A test file uses either Ginkgo or testify.
func TestTestFiles_UseOneFramework(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"controllers", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(at, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), at, nil, parser.ImportsOnly)
			require.NoError(t, err)
			ways := map[string]bool{}
			for _, i := range parsed.Imports {
				for _, way := range []string{"onsi/ginkgo", "stretchr/testify"} {
					if strings.Contains(i.Path.Value, way) {
						ways[way] = true
					}
				}
			}
			require.LessOrEqual(t, len(ways), 1, at)
			return nil
		}))
	}
}

var statusRow = regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`)

// The REST API page explains exactly the error statuses of the OpenAPI document, and 405 and 501,
// which unknown methods and unsupported endpoints return.
func TestErrorStatuses_AreDocumented(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(page(t, "docs/openapi.json")), &document))
	answered := map[string]bool{"405": true, "501": true}
	for _, item := range document.Paths {
		for _, operation := range item {
			for status := range operation.Responses {
				if status >= "400" {
					answered[status] = true
				}
			}
		}
	}
	explained := map[string]bool{}
	for _, row := range statusRow.FindAllStringSubmatch(page(t, "docs/rest-api.md"), -1) {
		for status := range strings.SplitSeq(row[1], ", ") {
			explained[status] = true
		}
	}
	require.Equal(t, answered, explained)
}
