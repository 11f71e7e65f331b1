// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Names in the shared folder.
const (
	sourceFolder = "source"
	gitFolder    = "git"
	resultFile   = "fetch.json"
)

// Result is the result of Fetch for Pack.
type Result struct {
	// Commit is the full hash. Message and Author belong to the commit.
	Commit  string `json:"commit,omitempty"`
	Message string `json:"message,omitempty"`
	Author  string `json:"author,omitempty"`
	// Branch is the requested branch or tag, else the repository's default branch.
	Branch string `json:"branch,omitempty"`
	// Error is the cause and the remedy if there are no files; otherwise "".
	Error string `json:"error,omitempty"`
	// Log contains the lines of the fetch.
	Log []string `json:"log,omitempty"`
}

// maxCommitText limits a commit's message and author, in bytes.
const maxCommitText = 1000

func writeResult(dir string, r Result) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the result of the fetch: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, resultFile), data, 0o600); err != nil {
		return fmt.Errorf("writing the result of the fetch: %w", err)
	}
	return nil
}

func readResult(dir string) (Result, error) {
	var r Result
	data, err := os.ReadFile(filepath.Join(dir, resultFile)) //nolint:gosec // a constant name in the folder of the flag
	if errors.Is(err, os.ErrNotExist) {
		return r, errors.New("the folder holds no fetched commit; run `runner build fetch` first")
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading the result of the fetch: %w", err)
	}
	return r, nil
}

// addLine adds a line to the log.
func (r *Result) addLine(now time.Time, format string, args ...any) {
	r.Log = append(r.Log, logLine(now, format, args...))
}

// logLine formats one line of a build's log.
func logLine(now time.Time, format string, args ...any) string {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n  ")
	return now.UTC().Format("15:04:05") + " " + text + "\n"
}
