// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// Check reads a repository from its root, with all that a build refuses in it: what its files
// say, what they refer to, and what check, nil or an engine's, finds. The project is whole where
// there are no problems. It asks nobody, so that a build and a command line find the same.
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

// checkFiles is Check of files that are read.
func checkFiles(files bundle.Files, check func(*bundle.Project) bundle.Problems) (*bundle.Project, bundle.Problems) {
	project, problems := bundle.Examine(files)
	more := append(checkKeys(project), suite.Check(project)...)
	if check != nil {
		more = append(more, check(project)...)
	}
	return project, problems.With(more)
}

// checkKeys finds the expressions of agents that are none. One that agents share is compiled once.
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
			if !slices.Contains(problems, problem) { // a default of many agents
				problems = append(problems, problem)
			}
		}
	}
	return problems
}
