// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// maxChanges is how often a change is repeated because another one came first.
const maxChanges = 5

// readVariables returns the variables of an environment.
func (c *apiClient) readVariables(ctx context.Context, e restclient.Environment) (restclient.Document[[]restclient.Variable], error) {
	known, err := c.GetVariables(ctx, e.ID)
	if err != nil {
		return known, fmt.Errorf("reading the variables of environment %s: %w", e.Slug, err)
	}
	return known, nil
}

// changeVariables changes the variables of an environment. It reads all of them, passes them to edit and writes the result,
// unless another change came in between; then it starts again. Sensitive variables that edit returns unchanged keep their values.
func (c *apiClient) changeVariables(ctx context.Context, e restclient.Environment, edit func([]restclient.VariableInput) ([]restclient.VariableInput, error)) error {
	for try := 1; ; try++ {
		known, err := c.readVariables(ctx, e)
		if err != nil {
			return err
		}
		changed, err := edit(asInput(known.Value))
		if err != nil {
			return err
		}
		_, err = c.ReplaceVariables(ctx, e.ID, &restclient.ReplaceVariablesParams{IfMatch: &known.ETag}, changed)
		var problem *restclient.ProblemError
		if errors.As(err, &problem) && problem.Status == http.StatusPreconditionFailed && try < maxChanges {
			continue
		}
		if err != nil {
			return fmt.Errorf("changing the variables of environment %s: %w", e.Slug, err)
		}
		return nil
	}
}

// asInput returns variables as the REST API accepts them.
func asInput(known []restclient.Variable) []restclient.VariableInput {
	input := make([]restclient.VariableInput, len(known))
	for i, v := range known {
		input[i] = restclient.VariableInput{Name: v.Name, Value: &known[i].Value, Sensitive: v.Sensitive}
		if ref, err := v.SecretRef.Get(); err == nil {
			input[i].SecretRef.Set(restclient.KeyOfInput(ref))
		} else if v.SecretRef.IsNull() {
			input[i].SecretRef.SetNull()
		}
	}
	return input
}

// inputNames returns the names of variables.
func inputNames(list []restclient.VariableInput) []string {
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = v.Name
	}
	return names
}

// unknownVariable is the error for a name that no variable of an environment has.
func unknownVariable(e restclient.Environment, name string, known []string) error {
	there := "none"
	if len(known) > 0 {
		there = strings.Join(known, ", ")
	}
	return fmt.Errorf("environment %s has no variable %s; there is %s", e.Slug, printable(name), there)
}

// indexOfVariable returns the index of the variable with a name, -1 if there is none.
func indexOfVariable(list []restclient.VariableInput, name string) int {
	return slices.IndexFunc(list, func(v restclient.VariableInput) bool { return v.Name == name })
}
