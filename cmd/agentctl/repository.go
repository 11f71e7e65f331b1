// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/agentplatform/agentplatform/bundle"
)

// readRepository returns the project of a repository that a build accepts. It prints warnings and problems to messages. The
// error of a repository with problems ends with the consequence, such as "nothing was run".
func readRepository(dir string, messages io.Writer, consequence string) (*bundle.Project, error) {
	project, problems, err := checkRepository(dir)
	if err != nil {
		return nil, err
	}
	printWarnings(messages, dir, findMisnamed(dir))
	if len(problems) > 0 {
		printProblems(messages, dir, problems)
		return nil, fmt.Errorf("%s in the repository; %s", formatCount(len(problems), "problem"), consequence)
	}
	return project, nil
}
