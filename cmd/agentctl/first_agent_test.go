// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// written matches the files that a page writes with cat.
var written = regexp.MustCompile(`(?ms)^cat (>>?) (\S+) <<'EOF'\n(.*?)^EOF$`)

// command matches the commands of agentctl that a page runs on the reader's machine, each with the output that it states.
var command = regexp.MustCompile(`(?m)^agentctl (lint|test|run .*?) +# (.*)$`)

// notChecked matches the note of lint about variables. The page explains it.
var notChecked = regexp.MustCompile(`(?m)^not checked: .* ORDERS_URL; .*\n`)

// word matches a word of a command line, also one in single quotes.
var word = regexp.MustCompile(`'[^']*'|\S+`)

// At each step of the tutorial, lint, test and run succeed with the output that the page states.
func TestFirstAgentTutorial_Passes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/first-agent.md")
	require.NoError(t, err)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/orders/4711" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"order": "4711", "state": "shipped", "carrier": "DHL"}`)
	}))
	t.Cleanup(shop.Close)
	dir, runs := t.TempDir(), 0
	for _, step := range strings.Split(string(page), "\n```sh\n") {
		step, _, _ = strings.Cut(step, "\n```")
		writeStep(t, dir, step)
		for _, said := range command.FindAllStringSubmatch(step, -1) {
			if strings.HasPrefix(said[2], "the value") {
				continue
			}
			args, isRun := []string{said[1], dir}, strings.HasPrefix(said[1], "run ")
			if isRun {
				args = runArguments(said[1], dir, shop.URL)
			}
			out, messages, err := run(t, args...)
			require.NoError(t, err, said[0]+messages)
			if !isRun {
				out = notChecked.ReplaceAllString(messages, "")
			}
			require.Equal(t, said[2]+"\n", out, said[0])
			runs++
		}
	}
	require.Equal(t, 7, runs)
}

// writeStep writes the files that a block of the page writes.
func writeStep(t *testing.T, dir, step string) {
	t.Helper()
	for _, file := range written.FindAllStringSubmatch(step, -1) {
		path := filepath.Join(dir, file[2])
		before := ""
		if file[1] == ">>" {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			before = string(text)
		}
		writeTestFile(t, path, before+file[3])
	}
}

// runArguments returns the arguments of a run in the folder of the tutorial, which calls the service at an address.
func runArguments(line, dir, service string) (args []string) {
	for _, one := range word.FindAllString(line, -1) {
		one = strings.ReplaceAll(strings.Trim(one, "'"), "http://127.0.0.1:18083", service)
		if strings.HasPrefix(one, "tests/") {
			one = filepath.Join(dir, one)
		}
		args = append(args, one)
	}
	return append(args, "--folder", dir)
}
