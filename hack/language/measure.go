// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert" //nolint:depguard // the parameters of its methods show which argument is a message
)

// pattern is a form of sentence that plain English does without.
type pattern struct {
	name string
	re   *regexp.Regexp
}

var patterns = []pattern{
	{"headless clauses", regexp.MustCompile(`(?i)\b(what|who|whoever|whose)\s+(is|are|was|were|has|have|had|may|can|cannot|must|does|do|did|` +
		`will|comes|goes|asks|sends|waits|needs|wants|holds|knows|fails|ends)\b`)},
	{"those that/of/which", regexp.MustCompile(`(?i)\bthose\s+(that|of|which|who|whose)\b`)},
	{"of/by/in/to which/whom", regexp.MustCompile(`(?i)\b(of|by|in|to)\s+(which|whom)\b`)},
	{"is said/told", regexp.MustCompile(`(?i)\b(is|are|was|were)\s+(said|told)\b`)},
}

// shortName is the most letters of a function name that counts as short.
const shortName = 6

var (
	testName = regexp.MustCompile(`^Test[A-Z]\w*_[A-Z]`)
	word     = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
)

// measure counts words, matches and names.
type measure struct {
	prose, texts        counter
	messages            counter // of tests
	functions, shorts   int
	tests, unnamedTests int
	matches             []string
}

// counter counts words, and the matches of each pattern.
type counter struct {
	words   int
	matches [4]int
}

// figure is a measurement: a number of matches, and their rate with two decimals.
type figure struct {
	Matches int     `json:"matches"`
	Rate    float64 `json:"rate"`
}

// newFigure returns the figure of matches in a whole, with the rate per scale.
func newFigure(scale float64, matches, whole int) figure {
	return figure{matches, math.Round(100*scale*float64(matches)/math.Max(float64(whole), 1)) / 100}
}

// exceeds reports whether more matches were added than new text allows: both values are above the limit. So a figure does not
// exceed its limit if clean text is deleted or moved.
func (f figure) exceeds(limit figure) bool { return f.Matches > limit.Matches && f.Rate > limit.Rate }

// figures returns the figures by name: matches per 1,000 words, and shares in percent.
func (m *measure) figures() map[string]figure {
	figures := map[string]figure{
		"short function names, percent": newFigure(100, m.shorts, m.functions),
		"other test names, percent":     newFigure(100, m.unnamedTests, m.tests),
	}
	for i, p := range patterns {
		figures[p.name+", prose"] = newFigure(1000, m.prose.matches[i], m.prose.words)
		figures[p.name+", texts"] = newFigure(1000, m.texts.matches[i], m.texts.words)
		figures[p.name+", test messages"] = newFigure(1000, m.messages.matches[i], m.messages.words)
	}
	return figures
}

func (m *measure) addProse(path string, paragraphs []string) {
	m.addParagraphs(&m.prose, path, paragraphs)
}

func (m *measure) addParagraphs(c *counter, path string, paragraphs []string) {
	for _, paragraph := range paragraphs {
		c.words += len(word.FindAllString(paragraph, -1))
		for i, p := range patterns {
			for _, at := range p.re.FindAllStringIndex(paragraph, -1) {
				c.matches[i]++
				m.matches = append(m.matches, fmt.Sprintf("%s: %s: …%s…", path, p.name, paragraph[max(0, at[0]-30):min(len(paragraph), at[1]+30)]))
			}
		}
	}
}

// addGoFile adds the comments, the texts or test messages, and the names of a Go file. Generated files are left out.
func (m *measure) addGoFile(path string, text []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing: %w", err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	for _, group := range file.Comments {
		m.addProse(path, commentProse(group))
	}
	isTest := strings.HasSuffix(path, "_test.go")
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			m.addName(fn, isTest)
		}
	}
	if isTest || strings.HasSuffix(file.Name.Name, "test") { // a test, or helpers of tests
		m.addParagraphs(&m.messages, path, testMessages(file))
		return nil
	}
	m.addParagraphs(&m.texts, path, shownTexts(file))
	return nil
}

// addName counts the name of a function of the product, or of a test.
func (m *measure) addName(fn *ast.FuncDecl, isTest bool) {
	name := fn.Name.Name
	switch {
	case isTest && fn.Recv == nil && strings.HasPrefix(name, "Test") && name != "TestMain":
		m.tests++
		if !testName.MatchString(name) {
			m.unnamedTests++
		}
	case isTest || fn.Name.IsExported() || fn.Recv == nil && (name == "main" || name == "init"):
	default:
		m.functions++
		if len(name) <= shortName {
			m.shorts++
		}
	}
}

// testingMethods are the methods of testing.T and rapid.T whose first argument is a text.
var testingMethods = []string{"Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Run"}

// ginkgoFunctions are the functions of Ginkgo whose first argument is a text.
var ginkgoFunctions = []string{
	"By", "Context", "Describe", "DescribeTable", "Entry", "FContext", "FDescribe", "FIt", "Fail", "It", "PContext", "PDescribe", "PIt",
	"ReportAfterSuite", "Skip", "Specify", "When", "XContext", "XDescribe", "XIt",
}

// gomegaMethods are the methods of Gomega whose second argument is a text: Expect(value).To(matcher, text).
var gomegaMethods = []string{"NotTo", "Should", "ShouldNot", "To", "ToNot"}

// messageIndexes has the index of the message in the arguments of each function of testify, without the test itself.
var messageIndexes = func() map[string]int {
	indexes := map[string]int{}
	for method := range reflect.TypeFor[*assert.Assertions]().Methods() {
		if !method.Type.IsVariadic() {
			continue
		}
		indexes[method.Name] = method.Type.NumIn() - 2 // without the receiver
		if strings.HasSuffix(method.Name, "f") && method.Type.In(method.Type.NumIn()-2).Kind() == reflect.String {
			indexes[method.Name]-- // the format is before its arguments
		}
	}
	for _, name := range []string{"Fail", "FailNow", "Failf", "FailNowf"} {
		indexes[name] = 0
	}
	return indexes
}()

// testMessages returns the texts that a test shows if it fails: the messages of assertions, and the names of subtests and steps.
// Expected values are no messages.
func testMessages(file *ast.File) (out []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if i := messageIndex(call); i >= 0 && i < len(call.Args) {
			if text := foldSum(call.Args[i]); countsAsText(text) {
				out = append(out, paragraphs(text)...)
			}
		}
		return true
	})
	return out
}

// messageIndex returns the index of the message in the arguments of a call, or -1.
func messageIndex(call *ast.CallExpr) int {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		if slices.Contains(ginkgoFunctions, fn.Name) {
			return 0
		}
	case *ast.SelectorExpr:
		index, known := messageIndexes[fn.Sel.Name]
		switch owner, _ := fn.X.(*ast.Ident); {
		case known && owner != nil && (owner.Name == "require" || owner.Name == "assert"):
			return index + 1 // after the test
		case slices.Contains(testingMethods, fn.Sel.Name):
			return 0
		case slices.Contains(gomegaMethods, fn.Sel.Name):
			return 1
		case known:
			return index // of require.New(t)
		}
	}
	return -1
}
