// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// Check reads a repository from its root and returns all problems that fail a build: in files, in
// references, and from check, which is nil or an engine's. Without problems the project is
// complete. It uses no network, so a build and a command line find the same problems.
func Check(root fs.FS, check func(*bundle.Project) bundle.Problems) (*bundle.Project, bundle.Problems, error) {
	files, err := bundle.ReadFiles(root)
	var problems bundle.Problems
	switch {
	case errors.As(err, &problems):
		return nil, problems, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading the files: %w", err)
	}
	project, problems := checkFiles(files, check)
	return project, problems, nil
}

// checkFiles is Check for files in memory.
func checkFiles(files bundle.Files, check func(*bundle.Project) bundle.Problems) (*bundle.Project, bundle.Problems) {
	project, problems := bundle.Examine(files)
	more := append(checkKeys(project), suite.Check(project)...)
	more = append(more, project.CheckToolCounts()...)
	if check != nil {
		more = append(more, check(project)...)
	}
	return project, problems.With(more)
}

// checkKeys finds invalid expressions of agents. It compiles an expression that several agents
// share only once.
func checkKeys(project *bundle.Project) (problems bundle.Problems) {
	checked := map[string]error{}
	for _, a := range project.Agents {
		if a.Concurrency == nil || a.Concurrency.Key == "" {
			continue
		}
		err, known := checked[a.Concurrency.Key]
		if !known {
			err = expr.CheckKey(a.Concurrency.Key)
			checked[a.Concurrency.Key] = err
		}
		if err != nil {
			problem := bundle.Problem{Position: a.At("concurrency", "key"), Message: fmt.Sprintf(`"concurrency.key" is not the CEL expression of a key: %v`, err)}
			if !slices.Contains(problems, problem) { // a default of several agents
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

// warnOAuthApps writes a line for each place that names an OAuth app that the environment lacks. The calls of such a tool fail
// until the app is there. A build that lists the tools of an MCP server with such an app has failed before.
func warnOAuthApps(
	readVariables func() (runnerconfig.Variables, error), project *bundle.Project, addLine func(format string, args ...any),
) error {
	uses := project.OAuthAppUses()
	if len(uses) == 0 {
		return nil
	}
	var known runnerconfig.Variables
	if readVariables != nil {
		var err error
		if known, err = readVariables(); err != nil {
			return fmt.Errorf("looking for OAuth apps: %w", err)
		}
	}
	for _, use := range uses {
		if _, found := known.FindOAuthApp(use.App); !found {
			addLine("warning: %s: %s", use.Position, runnerconfig.NoOAuthApp(use.App))
		}
	}
	return nil
}
