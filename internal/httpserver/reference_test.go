// SPDX-License-Identifier: Apache-2.0

package httpserver_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

var meaning = regexp.MustCompile(`^// (\d{3}): (.+)$`)

// The page docs/reference/error-codes.md lists all codes with their status and meaning, as codes.go declares them.
func TestReference_ListsAllErrorCodes(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var page strings.Builder
	page.WriteString("# Error codes\n\nThe field `code` of error responses, for programs that call the REST API or webhooks. " +
		"Codes never change; texts may.\n")
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n\n| Code | Status | Meaning |\n|---|---|---|\n", strings.TrimSuffix(strings.TrimSpace(group.Doc.Text()), "."))
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			code, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.NotNil(t, constant.Comment, "%s: say its status and its meaning", code)
			parts := meaning.FindStringSubmatch(constant.Comment.List[0].Text)
			require.NotNil(t, parts, "%s: say its status and its meaning", code)
			fmt.Fprintf(&page, "| `%s` | %s | %s. |\n", code, parts[1], strings.ToUpper(parts[2][:1])+parts[2][1:])
		}
	}
	refpage.Check(t, "error-codes.md", page.String())
}
