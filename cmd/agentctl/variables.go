// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// changeTries is how often a change is made anew that somebody else's came before.
const changeTries = 5

// variable is one of an environment, as the REST API shows and takes it.
type variable struct {
	Name      string          `json:"name"`
	Value     *string         `json:"value,omitempty"`
	Sensitive bool            `json:"sensitive"`
	SecretRef json.RawMessage `json:"secret_ref,omitempty"`
}

// shown is its value for people.
func (v variable) shown() string {
	if v.Value == nil {
		return ""
	}
	return *v.Value
}

// variables are those of an environment by name, with what names them as they are.
type variables struct {
	list []variable
	etag string
}

func variablesPath(e environment) string {
	return "/environments/" + url.PathEscape(e.ID) + "/variables"
}

// variables reads those of an environment.
func (r *rest) variables(ctx context.Context, e environment) (v variables, err error) {
	v.etag, err = r.tagged(ctx, http.MethodGet, variablesPath(e), "", "", nil, &v.list)
	if err != nil {
		return v, fmt.Errorf("reading the variables of environment %s: %w", e.Slug, err)
	}
	return v, nil
}

// change changes the variables of an environment: it reads all, and writes them where nobody has
// changed the environment in between; else it begins again. edit is given those that there are,
// of which sensitive ones keep their values.
func (r *rest) change(ctx context.Context, e environment, edit func([]variable) ([]variable, error)) error {
	for try := 1; ; try++ {
		now, err := r.variables(ctx, e)
		if err != nil {
			return err
		}
		next, err := edit(slices.Clone(now.list))
		if err != nil {
			return err
		}
		var answer []variable
		_, err = r.tagged(ctx, http.MethodPut, variablesPath(e), rand.Text(), now.etag, next, &answer)
		var problem *restError
		if errors.As(err, &problem) && problem.Status == http.StatusPreconditionFailed && try < changeTries {
			continue
		}
		if err != nil {
			return fmt.Errorf("changing the variables of environment %s: %w", e.Slug, err)
		}
		return nil
	}
}

// find is where the variable of a name stands, -1 for nowhere.
func find(list []variable, name string) int {
	return slices.IndexFunc(list, func(v variable) bool { return v.Name == name })
}

// variableNames are the names of variables, for messages.
func variableNames(list []variable) string {
	if len(list) == 0 {
		return "none"
	}
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = v.Name
	}
	return strings.Join(names, ", ")
}
