// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/localrun"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// recordTimeout bounds the run of a case that was recorded.
const recordTimeout = time.Minute

// recording is a test case that a run will write.
type recording struct {
	*runOptions
	// name is the name of the case, file the path in the repository, "" outside of it. attachments are paths below tests/.
	name, file  string
	attachments []string
}

// notInCaseName matches the characters that names of cases cannot have.
var notInCaseName = regexp.MustCompile(`[^a-z0-9]+`)

// prepareRecording checks the flag --record before anything happens. It returns nil without the flag.
func (o *runOptions) prepareRecording() (*recording, error) {
	if o.record == "" {
		if o.name != "" {
			return nil, errors.New("--case needs --record")
		}
		return nil, nil
	}
	if _, err := os.Lstat(o.record); err == nil {
		return nil, fmt.Errorf("--record: %s exists; name a new file", o.record)
	}
	r := &recording{runOptions: o, name: o.name, file: inRepository(o.dir, o.record)}
	if r.name == "" {
		base := strings.ToLower(strings.TrimSuffix(filepath.Base(o.record), filepath.Ext(o.record)))
		r.name = strings.Trim(notInCaseName.ReplaceAllString(base, "-"), "-")
	}
	for _, file := range o.files {
		inside, isTest := strings.CutPrefix(inRepository(o.dir, file), "tests/")
		if !isTest {
			return nil, fmt.Errorf("--record: %s must be below %s, because a test reads its files there", file, filepath.Join(o.dir, "tests"))
		}
		r.attachments = append(r.attachments, inside)
	}
	return r, nil
}

// inRepository returns the path of a file from the root of a repository, "" for a file outside.
func inRepository(dir, file string) string {
	root, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	own, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	inside, err := filepath.Rel(root, own)
	if err != nil || !filepath.IsLocal(inside) {
		return ""
	}
	return filepath.ToSlash(inside)
}

// writeCase writes the case, and runs it once.
func (r *recording) writeCase(ctx context.Context, result *localrun.Result, opts localrun.Options) error {
	text, notes, err := result.TestCase(r.name, r.attachments)
	if err != nil {
		return fmt.Errorf("recording %s: %w", r.record, err)
	}
	if err := os.MkdirAll(filepath.Dir(r.record), 0o755); err != nil { //nolint:gosec // a folder of a repository
		return fmt.Errorf("--record: %w", err)
	}
	file, err := os.OpenFile(r.record, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a file of a repository
	if err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	for _, note := range notes {
		fmt.Fprintf(r.messages, "note: %s\n", printable(note))
	}
	problem, err := r.replayCase(ctx, text, opts)
	if err != nil {
		return fmt.Errorf("testing %s: %w", r.record, err)
	}
	if problem != "" {
		fmt.Fprintf(r.messages, "recorded %s; edit it, because the case does not pass yet:\n%s\n", r.record, printableLines(problem))
		return nil
	}
	fmt.Fprintf(r.messages, "recorded %s; the case passes\n", r.record)
	if !isTestFile(r.file) {
		fmt.Fprintf(r.messages, "note: no build reads %s; its tests are the files tests/**/*.yaml\n", r.record)
	}
	return nil
}

func isTestFile(file string) bool {
	return strings.HasPrefix(file, "tests/") && path.Ext(file) == ".yaml" && !strings.HasPrefix(file, bundle.TestFile("files/"))
}

// replayCase runs the case with the variables of prompts only, as a test on another machine. problem says why it fails.
func (r *recording) replayCase(ctx context.Context, text []byte, opts localrun.Options) (problem string, err error) {
	files, err := readFolder(r.dir)
	if err != nil {
		return "", err
	}
	const name = "tests/recorded-now.yaml"
	delete(files, r.file)
	files[name] = text
	project, err := bundle.Parse(files)
	if err != nil {
		return err.Error(), nil
	}
	if problems := suite.Check(project); len(problems) > 0 {
		return problems.Error(), nil
	}
	var known runnerconfig.Variables
	for _, a := range project.Agents {
		for _, name := range bundle.PromptVariables(a.SystemPrompt) {
			if v, found := opts.Variables.Find(name); found {
				known.Variables = append(known.Variables, v)
			}
		}
	}
	known = runnerconfig.Sorted(known.Variables)
	results, err := suite.Run(ctx, suite.Options{
		Project: project, Models: newRegistry(runnerconfig.Providers{}), Timeout: recordTimeout,
		Only: func(agent string, c *bundle.Case) bool {
			return agent == r.agent && c.Name == r.name && c.At("name").File == name
		},
		Variables: func() (runnerconfig.Variables, error) { return known, nil },
	})
	if err != nil {
		return "", err
	}
	for _, one := range results {
		if !one.Passed {
			return one.Explain(), nil
		}
	}
	return "", nil
}
