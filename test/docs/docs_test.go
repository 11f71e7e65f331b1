// SPDX-License-Identifier: Apache-2.0

// Package docs tests that the documentation matches the repository.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	codePattern    = regexp.MustCompile("`([^`\n]+)`")
	fencePattern   = regexp.MustCompile("(?s)```.*?```")
)

// pages returns all Markdown files of the repository by path from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		if d.IsDir() && (name == ".git" || name == "bin" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(at)
		out[name] = string(text)
		return err
	}))
	require.Contains(t, out, "README.md")
	return out
}

// link is the target of a link: a path from the root and a heading.
type link struct{ target, anchor string }

// links returns the links of a page to files of the repository.
func links(page, text string) (out []link) {
	for _, found := range linkPattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(text, ""), -1) {
		if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
			continue
		}
		target, anchor, _ := strings.Cut(found[1], "#")
		if target == "" {
			target = path.Base(page)
		}
		out = append(out, link{path.Join(path.Dir(page), target), anchor})
	}
	return out
}

// anchors returns the link anchors of the headings of a page.
func anchors(text string) (out []string) {
	for _, found := range headingPattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(text, ""), -1) {
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(found[1])))
	}
	return out
}

// Every link has an existing file and heading as its target.
func TestLinks_HaveTargets(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for page, text := range all {
		for _, l := range links(page, text) {
			_, err := os.Stat(filepath.Join(root, l.target))
			require.NoError(t, err, "%s leads to %s", page, l.target)
			if l.anchor != "" {
				require.Contains(t, anchors(all[l.target]), l.anchor, "%s leads to a heading of %s", page, l.target)
			}
		}
	}
}

// Every page is reachable from the README.
func TestPages_AreReachable(t *testing.T) {
	t.Parallel()
	all := pages(t)
	seen, next := map[string]bool{}, []string{"README.md"}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if seen[page] {
			continue
		}
		seen[page] = true
		for _, l := range links(page, all[page]) {
			if _, isPage := all[l.target]; isPage {
				next = append(next, l.target)
			}
			for other := range all { // a folder shows its pages
				if path.Dir(other) == l.target {
					next = append(next, other)
				}
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(all)), slices.Collect(maps.Keys(seen)))
}

// After a page stops a StatefulSet, it waits until the pod is gone. Until then the pod has the store open.
func TestPages_WaitForStoppedPods(t *testing.T) {
	t.Parallel()
	stops := 0
	for page, text := range pages(t) {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if strings.Contains(line, "kubectl") && strings.Contains(line, "scale statefulset") && strings.Contains(line, "--replicas=0") {
				stops++
				require.Contains(t, lines[i+1], "wait --for=delete pod/", "%s:%d", page, i+2)
			}
		}
	}
	require.Positive(t, stops)
}

// The README and the tutorial state the number of its steps.
func TestFirstAgent_StatesItsSteps(t *testing.T) {
	t.Parallel()
	all := pages(t)
	steps := len(regexp.MustCompile(`(?m)^## \d+\. `).FindAllString(all["docs/first-agent.md"], -1))
	said := []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}[steps]
	require.Contains(t, all["README.md"], "takes "+said+" steps from there")
	require.Contains(t, all["docs/first-agent.md"], "in "+said+" steps")
}

// Every path in backquotes that starts with a folder of the repository exists.
func TestNamedFiles_Exist(t *testing.T) {
	t.Parallel()
	folders, err := os.ReadDir(root)
	require.NoError(t, err)
	for page, text := range pages(t) {
		for _, found := range codePattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(text, ""), -1) {
			name := strings.TrimRight(found[1], "/")
			first, _, below := strings.Cut(name, "/")
			// bin/ exists only after a build.
			ours := first != "bin" && slices.ContainsFunc(folders, func(f fs.DirEntry) bool { return f.IsDir() && f.Name() == first })
			if !below || !ours || strings.ContainsAny(name, "<>*{} …$:") || ofProject(page, first) {
				continue
			}
			_, fromRoot := os.Stat(filepath.Join(root, name))
			_, fromPage := os.Stat(filepath.Join(root, path.Dir(page), name))
			require.True(t, fromRoot == nil || fromPage == nil, "%s names %s", page, name)
		}
	}
}

// ofProject reports whether a path may belong to a project repository, the subject of the page.
func ofProject(page, folder string) bool {
	return page == "docs/spec/repository.md" || folder == "examples" && page != "README.md"
}

var (
	requirePattern = regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)
	bracesPattern  = regexp.MustCompile(`^(.*)\{([^}]+)\}(.*)$`)
)

// The page of dependencies explains each direct dependency, and no other one.
func TestDependencies_HaveReasons(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	var direct []string
	for _, found := range requirePattern.FindAllStringSubmatch(string(mod), -1) {
		direct = append(direct, found[1])
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/designs/dependencies.md"))
	require.NoError(t, err)
	var explained []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, found := range codePattern.FindAllStringSubmatch(cells[1], -1) {
			explained = append(explained, expand(found[1])...)
		}
	}
	require.ElementsMatch(t, direct, explained)
}

// expand expands a{b,c} to ab and ac.
func expand(text string) (out []string) {
	braces := bracesPattern.FindStringSubmatch(text)
	if braces == nil {
		return []string{text}
	}
	for part := range strings.SplitSeq(braces[2], ",") {
		out = append(out, braces[1]+part+braces[3])
	}
	return out
}
