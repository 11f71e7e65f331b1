// SPDX-License-Identifier: Apache-2.0

// Command language measures how plain the English of the project is, and fails if a figure rises
// above its limit in limits.json, both in matches and in their rate. The limits only go down: -update lowers them to the
// figures of today.
//
// It counts four patterns that readers stumble over, per 1,000 words, in prose (Markdown and Go
// comments), in texts that people are shown (string literals of at least three words), and in the messages of tests
// (assertions, subtests and steps). It also measures the share of unexported functions with a name of at most six letters, and the share of
// tests whose name is not Test<Unit>_<Case>. With -list it prints each place that a pattern matches.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/hack/internal/source"
)

const limitsFile = "hack/language/limits.json"

func main() {
	update := flag.Bool("update", false, "lower the limits to the figures of today")
	list := flag.Bool("list", false, "print each match with its file")
	under := flag.String("under", ".", "measure the files below this folder, without comparing with the limits")
	flag.Parse()
	if err := checkLanguage(*under, *update, *list); err != nil {
		fmt.Fprintln(os.Stderr, "language:", err)
		os.Exit(1)
	}
}

func checkLanguage(root string, update, list bool) error {
	m, err := measureFiles(root)
	if err != nil {
		return err
	}
	if list {
		for _, match := range m.matches {
			fmt.Println(match)
		}
	}
	figures := m.figures()
	limits, err := readLimits()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		f, limit := figures[name], limits[name]
		fmt.Printf("%-32s %5d, rate %5.2f  limit %5d, rate %5.2f\n", name, f.Matches, f.Rate, limit.Matches, limit.Rate)
	}
	if filepath.Clean(root) != "." {
		return nil
	}
	if update {
		return lowerLimits(limits, figures)
	}
	return compare(figures, limits)
}

// measureFiles reads all Markdown and Go files below root.
func measureFiles(root string) (*measure, error) {
	m := &measure{}
	err := source.Files(root, ".md", func(path string, text []byte) error {
		m.addProse(path, markdownProse(string(text)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, source.Files(root, ".go", m.addGoFile)
}

// compare returns an error that names each figure above its limit.
func compare(figures, limits map[string]figure) error {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		f, limit := figures[name], limits[name]
		if _, known := limits[name]; !known || f.exceeds(limit) {
			problems = append(problems, fmt.Sprintf("%s: %d matches, rate %.2f, above the limit %d, rate %.2f", name, f.Matches, f.Rate, limit.Matches, limit.Rate))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s\nrewrite what `go run ./hack/language -list` prints in plain words: subject first, the noun named", strings.Join(problems, "\n"))
}

// lowerLimits writes the lower matches and the lower rate of limit and figure for each name.
func lowerLimits(limits, figures map[string]figure) error {
	lowered := map[string]figure{}
	for name, f := range figures {
		lowered[name] = f
		if limit, known := limits[name]; known {
			lowered[name] = figure{min(f.Matches, limit.Matches), min(f.Rate, limit.Rate)}
		}
	}
	text, err := json.MarshalIndent(lowered, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(limitsFile, append(text, '\n'), 0o600)
}

func readLimits() (map[string]figure, error) {
	text, err := os.ReadFile(limitsFile)
	if err != nil {
		return nil, err
	}
	limits := map[string]figure{}
	if err := json.Unmarshal(text, &limits); err != nil {
		return nil, fmt.Errorf("reading %s: %w", limitsFile, err)
	}
	return limits, nil
}
