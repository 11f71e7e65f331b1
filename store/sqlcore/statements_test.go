// SPDX-License-Identifier: Apache-2.0

package sqlcore_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofAll are the functions whose statements concern all projects, with the reason.
var ofAll = map[string]string{
	"AdoptCluster":         "hands over the claims of all projects",
	"ListProjected":        "sweeps deleted objects of all projects",
	"DueTicks":             "connectors of all projects tick",
	"addLinks":             "names its connectors, of all projects, by their whole keys",
	"sweepOrphans":         "finds the deleted environments of all projects",
	"WalkQueues":           "walks the queue of one environment or of all projects",
	"Look":                 "uses the rows of the walk in one environment",
	"lookAtQueue":          "uses the rows of the walk in one environment",
	"queueStatement":       "counts open runs over all projects",
	"QueueFigures":         "counts open runs over all projects",
	"ReportedVariant":      "uses the rows of its run's project",
	"isSinceRetention":     "uses the rows of its argument's project",
	"SinceOrOpenCondition": "uses the rows of its argument's project",
	"WithTerms":            "its terms hash the project, and readers of its rows compare the project",
	"OpenForOf":            "uses the rows of its argument's project",
	"demandStatement":      "uses the rows of the walk in one environment",
	"CountStored":          "counts ended runs of all projects",
	"RebuildRollups":       "counts ended runs of all projects",
	"DriftedEnvironments":  "environments of all projects are listed",
	"oldestByProject":      "walks from project to project",
	"TakeTurn":             "walks from project to project",
	"Sweep":                "rows of all projects expire",
	"readDue":              "runs and deliveries of all projects are due",
	"walkDays":             "uses the rows of its walk in one project",
	"ConnectorIDs":         "lists all IDs",
	"ProjectIDs":           "lists all IDs",

	"TakeRejectionNews": "connectors of all projects reject requests",
	"DropUploads":       "expires uploads of all projects",
	"DropBundles":       "expires bundles of all projects",
	"ListPollRequests":  "repositories of all projects are polled",
	"NextReplay":        "replays of all projects advance",
	"TakeReplays":       "replays of all projects advance",

	"noticeProjects": "uses the projects of its attempts",
	"dropExcerpts":   "uses the projects of its attempts",
	"claimSome":      "deliveries of all projects are due",
	"NextDelivery":   "deliveries of all projects are due",

	"dropDeletedObjects": "finds deleted objects of all projects",
	"forgetDays":         "days of all projects end",
	"deleteDays":         "days of all projects end",
	"oldestOf":           "measures the oldest row of all projects",
	"selectOverdue":      "days of all projects end",
	"OldestHistory":      "reads the oldest day of all projects",
	"exceptResults":      "expires blobs of all projects",
	"deleteAudit":        "walks from project to project",
	"resultDays":         "a partition has a day of all projects",

	"expiredDestinations": "deliveries of all projects expire",
	"ExpireRuns":          "runs of all projects expire",
	"Receive":             "uses the rows of its deliveries, of all projects",
	"SweepExpired":        "runners and blobs of all projects expire",
	"expiredKinds":        "keys, rejections and replays of all projects expire",
	"tracingProjects":     "walks from project to project",
	"claimTraces":         "uses the projects whose turn it is",
	"DropTraces":          "traces of all projects expire",
	"Token":               "finds the project of a token",
	"revokeKey":           "a key belongs to the platform and ends secrets of all projects",
	"Keys":                "counts the uses of a key in all projects",
	"RetireKey":           "checks the uses of a key in all projects",
}

// platform are the tables that belong to no project.
var platform = []string{"schema_compat", "schema_fingerprints", "ordinals", "cluster_lease", "platform_keys", "key_holders", "exchange_rates"}

// engines are the folders with migrations.
var engines = []string{"../postgres", "../sqlite"}

var (
	createTable = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \(\n(.*?)\n\)`)
	column      = regexp.MustCompile(`(?m)^    (\w+) (?:uuid|text|bigint|smallint|boolean|bytea|TEXT|INTEGER|BOOLEAN|BLOB)\b`)
	addColumn   = regexp.MustCompile(`ALTER TABLE (\w+) ADD COLUMN (\w+) `)
	primaryKey  = regexp.MustCompile(`(\w+) \w+ PRIMARY KEY|PRIMARY KEY \((\w+)`)
)

// tables returns the columns of the tables of a schema, and the first column of each primary key.
func tables(t *testing.T, engine string) (columns map[string][]string, first map[string]string) {
	t.Helper()
	migrations, err := filepath.Glob(filepath.Join(engine, "migrations", "*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, migrations)
	columns, first = map[string][]string{}, map[string]string{}
	for _, migration := range migrations { // in the order of application
		schema, err := os.ReadFile(migration)
		require.NoError(t, err)
		for _, table := range createTable.FindAllStringSubmatch(string(schema), -1) {
			for _, c := range column.FindAllStringSubmatch(table[2], -1) {
				columns[table[1]] = append(columns[table[1]], c[1])
			}
			key := primaryKey.FindStringSubmatch(table[2])
			require.NotNil(t, key, table[1])
			first[table[1]] = key[1] + key[2]
		}
		altered := addColumn.FindAllStringSubmatch(string(schema), -1)
		require.Len(t, altered, strings.Count(string(schema), "ALTER TABLE"), "%s: this test parses ALTER TABLE a ADD COLUMN b only", migration)
		for _, c := range altered {
			require.Contains(t, columns, c[1], migration)
			columns[c[1]] = append(columns[c[1]], c[2])
		}
	}
	return columns, first
}

func TestSchema_KeysBeginWithProject(t *testing.T) {
	t.Parallel()
	columns, first := tables(t, engines[0])
	others, _ := tables(t, engines[1])
	for _, of := range []map[string][]string{columns, others} { // each engine has its own search index
		require.Subset(t, of["run_words"], []string{"project_id", "run_id"})
		delete(of, "run_words")
	}
	require.Equal(t, columns, others)
	for table, key := range first {
		switch {
		case slices.Contains(platform, table):
		case table == "tokens":
			require.Contains(t, columns[table], "project_id", table)
		default:
			require.Equal(t, "project_id", key, table)
		}
	}
}

func TestStatements_NameTheProject(t *testing.T) {
	t.Parallel()
	columns, _ := tables(t, engines[0])
	check := checker{of: slices.DeleteFunc(slices.Sorted(maps.Keys(columns)), func(table string) bool {
		return slices.Contains(platform, table)
	})}
	count, needed := 0, map[string]bool{}
	for _, s := range statements(t) {
		fault := check.fault(s.text)
		switch {
		case fault == "":
		case ofAll[s.function] != "":
			needed[s.function] = true
		default:
			t.Errorf("%s, %s: %s\n%s", s.position, s.function, fault, s.text)
		}
		count++
	}
	require.Greater(t, count, 100, "statements were found")
	require.Equal(t, slices.Sorted(maps.Keys(ofAll)), slices.Sorted(maps.Keys(needed)), "every exception is needed")
}

func TestChecker_FindsStatementsWithoutProject(t *testing.T) {
	t.Parallel()
	check := checker{of: []string{"environments", "links"}}
	for statement, right := range map[string]bool{
		`SELECT 1 FROM environments WHERE project_id = $1 AND id = $2`:                                                  true,
		`SELECT 1 FROM environments WHERE id = $1`:                                                                      false,
		`SELECT project_id FROM environments WHERE id = $1`:                                                             false,
		`SELECT 1 FROM environments e WHERE e.id = $1 AND e.project_id = $2`:                                            true,
		`SELECT 1 FROM environments e JOIN links l ON l.id = e.id WHERE e.project_id = $1`:                              false,
		`SELECT 1 FROM environments e JOIN links l ON l.project_id = e.project_id WHERE e.id = $1`:                      false,
		`SELECT 1 FROM environments e JOIN links l ON l.project_id = e.project_id WHERE e.project_id = $1`:              true,
		`SELECT 1 FROM environments e, links WHERE e.project_id = $1 AND project_id = $1`:                               false,
		`INSERT INTO links (id) VALUES ($1)`:                                                                            false,
		`INSERT INTO links (project_id, id) VALUES ($1, $2)`:                                                            true,
		`UPDATE links SET project_id = $1 WHERE id = $2`:                                                                false,
		`UPDATE links SET id = $1 WHERE project_id = $2`:                                                                true,
		`DELETE FROM links WHERE id IN (SELECT id FROM environments WHERE project_id = $1)`:                             false,
		`DELETE FROM links WHERE project_id = $1 AND id IN (SELECT id FROM environments WHERE project_id = $1)`:         true,
		`SELECT 1 FROM {environments} WHERE id = $1`:                                                                    false,
		`SELECT 1 FROM {environments} WHERE project_id = $1 AND id = $2`:                                                true,
		`WITH r AS (SELECT 1 FROM other) SELECT 1 FROM r`:                                                               true,
		`SELECT 1 FROM  $name  WHERE id = $1`:                                                                           false,
		`SELECT 1 FROM  $name  o WHERE o.project_id = $1`:                                                               true,
		`UPDATE environments e SET name = 'links' FROM links l WHERE l.project_id = $1 AND e.project_id = l.project_id`: true,
	} {
		t.Run(fmt.Sprintf("%.60s", statement), func(t *testing.T) {
			require.Equal(t, right, check.fault(statement) == "", statement)
		})
	}
}

// checker finds statements that do not name the project.
type checker struct{ of []string }

// anyTable stands for a table whose name is known at run time only. It may be any table of a project.
const anyTable = "any_table"

var (
	literal    = regexp.MustCompile(`'[^']*'`)
	parted     = regexp.MustCompile(`\{(\w+)\}`)                            // a history table, of which one partition is meant
	named      = regexp.MustCompile(`\b(FROM|JOIN|UPDATE|INTO)\s+\$name\b`) // a table whose name is a variable
	verb       = regexp.MustCompile(`\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b`)
	assignment = regexp.MustCompile(`\bSET\s+project_id\b|,\s*project_id = excluded`)
	equality   = regexp.MustCompile(`(?:(\w+)\.)?\bproject_id = (?:(\w+)\.project_id\b|\$)`)
	keywords   = []string{"WHERE", "SET", "ON", "JOIN", "LEFT", "CROSS", "ORDER", "GROUP", "LIMIT", "FROM", "USING", "AS"}
)

// fault returns why a statement may reach rows of another project, or "". Every table must be in a
// comparison of projects, and there must be one comparison per table: one less would only tie the
// tables to each other.
func (c checker) fault(statement string) string {
	statement = parted.ReplaceAllString(literal.ReplaceAllString(statement, "''"), "$1")
	statement = named.ReplaceAllString(statement, "$1 "+anyTable)
	if !verb.MatchString(statement) {
		return ""
	}
	if assignment.MatchString(statement) {
		return "it moves rows to another project"
	}
	compared, comparisons := map[string]bool{}, 0
	for _, e := range equality.FindAllStringSubmatch(statement, -1) {
		compared[e[1]], compared[e[2]] = true, true
		comparisons++
	}
	names := strings.Join(append(slices.Clone(c.of), anyTable), "|")
	if regexp.MustCompile(`,\s*(?:` + names + `)\b(?:[^.]|$)`).MatchString(statement) {
		return "it joins with a comma"
	}
	for _, t := range regexp.MustCompile(`\bINTO (?:`+names+`)\b(?: AS \w+)?\s*\(([\w\s,]*)\)`).FindAllStringSubmatch(statement, -1) {
		if !strings.Contains(t[1], "project_id") {
			return "it inserts no project_id"
		}
	}
	for _, t := range regexp.MustCompile(`(\w+)\s+(`+names+`)\b([^.]|$)(?:\s*(?:AS )?(\w+))?`).FindAllStringSubmatch(statement, -1) {
		alias := t[4]
		if slices.Contains(keywords, alias) {
			alias = ""
		}
		switch t[1] {
		case "INTO":
			continue
		case "FROM", "JOIN", "UPDATE":
		default:
			return fmt.Sprintf("%q is not a place for a table", t[1])
		}
		if !compared[alias] && !compared[t[2]] {
			return fmt.Sprintf("the project of %q is not compared", strings.TrimSpace(t[0]))
		}
		comparisons--
	}
	if comparisons < 0 {
		return "the tables are tied to each other, but to no project"
	}
	return ""
}

// statement is a text with SQL, built from constants. Other parts are placeholders.
type statement struct {
	function, text string
	position       token.Position
}

// constants are the constants and variables of a package, by name.
type constants map[string]ast.Expr

func statements(t *testing.T) (out []statement) {
	t.Helper()
	files, known := token.NewFileSet(), map[string]constants{}
	packages := map[string][]*ast.File{}
	for _, pattern := range []string{"../*.go", "../*/*.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "../storetest/") {
				continue
			}
			file, err := parser.ParseFile(files, name, nil, 0)
			require.NoError(t, err)
			packages[file.Name.Name] = append(packages[file.Name.Name], file)
		}
	}
	for name, parsed := range packages {
		known[name] = constants{}
		for _, file := range parsed {
			known[name].learn(file)
		}
	}
	for name, parsed := range packages {
		read := reader{known: known, in: name}
		for _, file := range parsed {
			for _, declaration := range file.Decls {
				function, ok := declaration.(*ast.FuncDecl)
				if !ok || function.Body == nil {
					continue
				}
				read.locals = locals(read, function.Body)
				for _, found := range read.texts(function.Body) {
					out = append(out, statement{
						function: function.Name.Name, text: found.text, position: files.Position(found.at),
					})
				}
			}
		}
	}
	return out
}

func (c constants) learn(file *ast.File) {
	for _, declaration := range file.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST && general.Tok != token.VAR {
			continue
		}
		for _, spec := range general.Specs {
			values := spec.(*ast.ValueSpec)
			for i, name := range values.Names {
				if i < len(values.Values) {
					c[name.Name] = values.Values[i]
				}
			}
		}
	}
}

// reader evaluates text expressions.
type reader struct {
	known map[string]constants
	in    string // the package
	// locals are the known beginnings of a function's variables, before other text is appended.
	locals map[string]string
}

// locals returns the variables of a function that begin with a text.
func locals(r reader, body ast.Node) map[string]string {
	out, changed := map[string]string{}, map[string]bool{}
	begin := func(name ast.Expr, value ast.Expr) {
		if id, ok := name.(*ast.Ident); ok {
			s, isText := r.text(value)
			_, again := out[id.Name]
			changed[id.Name] = changed[id.Name] || again || !isText
			out[id.Name] = s
		}
	}
	ast.Inspect(body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				begin(n.Names[i], value)
			}
		case *ast.AssignStmt:
			for i := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) && n.Tok != token.ADD_ASSIGN {
					begin(n.Lhs[i], n.Rhs[i])
				}
			}
		}
		return true
	})
	maps.DeleteFunc(out, func(name, _ string) bool { return changed[name] })
	return out
}

type text struct {
	text string
	at   token.Pos
}

// texts returns the longest texts of a function.
func (r reader) texts(body ast.Node) (out []text) {
	ast.Inspect(body, func(node ast.Node) bool {
		expression, ok := node.(ast.Expr)
		if !ok {
			return true
		}
		s, ok := r.text(expression)
		if ok {
			out = append(out, text{s, expression.Pos()})
		}
		return !ok
	})
	return out
}

// text returns the value of a string expression.
func (r reader) text(expression ast.Expr) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		return r.constant(r.in, e.Name)
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok {
			return r.constant(of.Name, e.Sel.Name)
		}
	case *ast.BinaryExpr:
		left, leftOK := r.text(e.X)
		right, rightOK := r.text(e.Y)
		if e.Op == token.ADD && (leftOK || rightOK) {
			return r.part(e.X, left, leftOK) + r.part(e.Y, right, rightOK), true
		}
	}
	return "", false
}

func (r reader) constant(of, name string) (string, bool) {
	if value, ok := r.known[of][name]; ok {
		return reader{known: r.known, in: of}.text(value)
	}
	return "", false
}

// part returns the text of an operand, or a placeholder for a value that is known at run time only:
// conditions that name projects themselves, variables and arguments.
func (r reader) part(operand ast.Expr, text string, ok bool) string {
	if ok {
		return text
	}
	switch name := operand.(type) {
	case *ast.Ident:
		if r.locals[name.Name] != "" {
			return r.locals[name.Name] + " $ "
		}
		return " $name "
	case *ast.SelectorExpr:
		return " $name "
	}
	if call, ok := operand.(*ast.CallExpr); ok {
		switch method, _ := call.Fun.(*ast.SelectorExpr); {
		case method == nil:
		case method.Sel.Name == "KeyCondition":
			id, _ := r.text(call.Args[1])
			return "(" + strings.TrimSuffix(id, id[strings.LastIndex(id, ".")+1:]) + "project_id = $ AND " + id + " IN ($))"
		}
	}
	return "$ "
}
