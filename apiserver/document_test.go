// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// TestEveryErrorThatMayBeAnsweredIsExplained: what it means, and what it looks like.
func TestEveryErrorThatMayBeAnsweredIsExplained(t *testing.T) {
	t.Parallel()
	statuses := map[int]bool{}
	for _, r := range served(t) {
		for _, status := range r.errors {
			statuses[status] = true
		}
	}
	var explained, shown []int
	for status := range meanings {
		explained = append(explained, status)
	}
	for _, p := range errorExamples {
		shown = append(shown, p.Status)
		require.NotEmpty(t, p.Detail)
		require.Equal(t, http.StatusText(p.Status), p.Title)
	}
	slices.Sort(explained)
	slices.Sort(shown)
	require.Equal(t, slices.Sorted(maps.Keys(statuses)), explained)
	require.Equal(t, explained, shown)
	for _, f := range failures {
		require.True(t, statuses[f.status], "%d of the table of errors is described", f.status)
	}
	for status := range byStatus {
		require.True(t, statuses[status], status)
	}
}

// TestEveryReferenceLeadsSomewhere: and every schema and header is referred to.
func TestEveryReferenceLeadsSomewhere(t *testing.T) {
	t.Parallel()
	document, _ := described(t)
	used := map[string]bool{}
	var walk func(part any)
	walk = func(part any) {
		switch part := part.(type) {
		case node:
			if target, ok := part["$ref"].(string); ok {
				used[target] = true
			}
			for _, inner := range part {
				walk(inner)
			}
		case []any:
			for _, inner := range part {
				walk(inner)
			}
		}
	}
	walk(document)
	for target := range used {
		at := any(document)
		for _, token := range strings.Split(strings.TrimPrefix(target, "#/"), "/") {
			at = at.(node)[token]
			require.NotNil(t, at, target)
		}
	}
	components := document["components"].(node)
	for _, section := range []string{"schemas", "headers"} {
		for name := range components[section].(node) {
			require.True(t, used["#/components/"+section+"/"+name], "%s %s", section, name)
		}
	}
}

// TestGeneratorsFindANameForEachObject: of what has none they make one up, or repeat it.
func TestGeneratorsFindANameForEachObject(t *testing.T) {
	t.Parallel()
	document, schemas := described(t)
	named := 0
	var walk func(part any, at string)
	walk = func(part any, at string) {
		switch part := part.(type) {
		case node:
			require.NotContains(t, part, namedAs, at)
			if _, object := part["properties"].(node); object {
				require.Contains(t, schemas, strings.TrimPrefix(at, "/components/schemas/"))
				named++
			}
			for name, inner := range part {
				walk(inner, at+"/"+name)
			}
		case []any:
			for i, inner := range part {
				walk(inner, at+"/"+strconv.Itoa(i))
			}
		}
	}
	walk(document, "")
	require.Greater(t, named, 50)
}

// TestBytesAreNoText: generators take what has a schema of type string for a string.
func TestBytesAreNoText(t *testing.T) {
	t.Parallel()
	document, _ := described(t)
	tried := 0
	for _, r := range served(t) {
		op := document["paths"].(node)[projectPath+r.path].(node)[strings.ToLower(r.method)].(node)
		if r.takes != nil {
			for media, content := range op["requestBody"].(node)["content"].(node) {
				require.Empty(t, content, "%s %s", r.id, media)
				tried++
			}
		}
		if r.file {
			require.Empty(t, op["responses"].(node)[strconv.Itoa(r.status)].(node)["content"].(node)[anyMedia], r.id)
			tried++
		}
	}
	require.Equal(t, 3, tried)
}

// TestTheDocumentSaysWhoseItIs: version, licence, where it is served.
func TestTheDocumentSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	document, _ := described(t)
	info := document["info"].(node)
	require.Equal(t, "1.0.0", info["version"])
	require.Equal(t, "Apache-2.0", info["license"].(node)["identifier"])
	require.NotEmpty(t, info["description"])
	require.NotEmpty(t, document["servers"])
	tags := map[string]bool{}
	for _, tag := range document["tags"].([]any) {
		require.NotEmpty(t, tag.(node)["description"])
		tags[tag.(node)["name"].(string)] = true
	}
	for _, r := range served(t) {
		require.True(t, tags[r.tag], "%s: %s", r.id, r.tag)
	}
}

// TestTheHeadersOfEachCallAreDescribed: those that it heeds and no other ones.
func TestTheHeadersOfEachCallAreDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range served(t) {
		var heeded []string
		for _, p := range operationOf(t, w, r).Parameters {
			if p.In == "header" {
				heeded = append(heeded, p.Name)
			}
			if r.stream && p.Name == "Last-Event-ID" {
				heeded = nil // which goes on
			}
		}
		require.Equal(t, map[effect][]string{
			reads: nil, creates: {"Idempotency-Key"}, acts: {"Idempotency-Key"}, alters: {"Idempotency-Key", "If-Match"},
		}[r.does], heeded, r.id)
		require.Equal(t, r.does == alters, slices.Contains(r.errors, http.StatusPreconditionFailed), r.id)
		again := r.id == "redeploy" || r.id == "deployAnyway" // of which the contract says 200
		require.Equal(t, r.does == creates && !again, r.status == http.StatusCreated, r.id)
	}
}

// TestThePageOfTheAPIIsTrue: what docs/rest-api.md says of statuses, limits and what
// is not in this release.
func TestThePageOfTheAPIIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/rest-api.md")
	require.NoError(t, err)
	page := string(text)
	for status := range meanings {
		if status == http.StatusRequestTimeout || status == http.StatusInternalServerError {
			continue // of which nobody needs to be told
		}
		require.Regexp(t, `\n\| [0-9, ]*`+strconv.Itoa(status)+`[0-9, ]* \|`, page)
	}
	require.Contains(t, page, "at most "+strconv.Itoa(maxIdempotencyKey)+" characters")
	require.Contains(t, page, "last "+strconv.Itoa(repeatsLookedAt)+" entries")
	require.Contains(t, page, "120 requests in any 60 seconds")
	for _, code := range []httpserver.Code{httpserver.CodeInvalid, httpserver.CodeKeyReused, httpserver.CodeNotImplemented} {
		require.Contains(t, page, string(code))
	}
	_, missing, ok := strings.Cut(page, "## What this release does not have")
	require.True(t, ok)
	for _, r := range routes {
		if r.mount != nil {
			continue
		}
		word := regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(r.path, "")
		parts := strings.FieldsFunc(word, func(c rune) bool { return c == '/' })
		last := parts[len(parts)-1]
		named := strings.Contains(missing, last) || strings.Contains(missing, "`"+parts[0]) ||
			strings.Contains(missing, "`"+r.method+"`") || strings.Contains(missing, r.method+" "+r.path)
		require.True(t, named, "%s %s is not on the page", r.method, r.path)
	}
}
