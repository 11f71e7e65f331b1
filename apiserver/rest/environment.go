// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// EnvironmentPath names an environment.
type EnvironmentPath struct {
	ProjectPath
	EnvironmentID ID `path:"environment_id" resource:"environment" doc:"The environment."`
}

// EnvironmentQuery names the environment that a list is of.
type EnvironmentQuery struct {
	ProjectPath
	EnvironmentID ID `query:"environment_id" resource:"environment" required:"true" doc:"The environment."`
}

// IsRejected reports whether the platform rejects an environment, for example because of its plan.
func IsRejected(e *v1alpha1.Environment) bool {
	reasons := []string{v1alpha1.ReasonSlugTaken, v1alpha1.ReasonLimitReached, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonRefused}
	return slices.ContainsFunc(reasons, func(reason string) bool { return IsStalledBy(e, reason) })
}

// CheckTestEnvironment returns 403 if the tests of an environment use another environment that the key does not reach, because the log
// shows the output of the tests.
func CheckTestEnvironment(c *Caller, environment *v1alpha1.Environment, skipTests bool) error {
	if with := environment.Spec.TestEnvironment; with != "" && !skipTests && !c.Reaches(string(with)) {
		return NewProblem(http.StatusForbidden, httpserver.CodeForbidden,
			"the tests of this environment use the model providers and variables of another environment (its testEnvironment), and the key does not reach that environment")
	}
	return nil
}
