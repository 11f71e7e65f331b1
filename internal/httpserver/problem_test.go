// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriteProblem_SendsProblem(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	p := NewProblem(http.StatusServiceUnavailable, CodeStoreUnavailable, "The store does not answer; try again.")
	p.RetryAfter = 1500 * time.Millisecond
	WriteProblem(w, p)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	require.Empty(t, w.Header().Get("WWW-Authenticate"))
	require.Equal(t, "close", w.Header().Get("Connection"), "another replica may be better off")
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.JSONEq(t, `{"title":"Service Unavailable","status":503,"code":"store_unavailable",
		"detail":"The store does not answer; try again.","errors":[]}`, w.Body.String())

	w = httptest.NewRecorder()
	p = NewProblem(http.StatusUnauthorized, CodeUnauthorized, "who are you?")
	p.Errors = Fields{{Location: "header.Authorization", Message: "is missing"}}
	WriteProblem(w, p)
	require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Empty(t, w.Header().Get("Connection"))
	require.Contains(t, w.Body.String(), `"errors":[{"location":"header.Authorization","message":"is missing"}]`)
}

func TestWholeSeconds_RoundsUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		t.Run(d.String(), func(t *testing.T) {
			require.Equal(t, want, WholeSeconds(d), d)
		})
	}
}

// Each code has a sentence with its status, and no other code has the same.
func TestCodes_HaveSentences(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, parser.ParseComments)
	require.NoError(t, err)
	form, comment, seen := regexp.MustCompile(`^"[a-z][a-z_]*"$`), regexp.MustCompile(`^[45][0-9][0-9]: .{10,}`), map[string]bool{}
	for _, d := range file.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			value := spec.(*ast.ValueSpec)
			code := value.Values[0].(*ast.BasicLit).Value
			require.Regexp(t, form, code)
			require.False(t, seen[code], code)
			seen[code] = true
			require.Regexp(t, comment, strings.TrimSpace(value.Comment.Text()), code)
		}
	}
	require.Greater(t, len(seen), 40)
}
