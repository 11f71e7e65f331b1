// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/expand"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

// TextError reports a text of a connector that cannot be expanded, and the reason.
type TextError struct{ Problem string }

// Error returns the problem as a text for users.
func (e *TextError) Error() string { return e.Problem }

// NamesVariables reports whether a connector of the code has a text to expand.
func NamesVariables(c *v1alpha1.Connector) bool {
	if !c.DefinedInCode() {
		return false
	}
	return slices.ContainsFunc(textsOf(c), expand.Names)
}

// textsOf returns the texts of a connector that may name variables. Maps are in the order of their keys.
func textsOf(c *v1alpha1.Connector) (texts []string) {
	config := crd.ConfigOf(c)
	for _, f := range crd.KindOf(c).Fields() {
		if f.Variables == "" {
			continue
		}
		switch value := f.In(&config).Interface().(type) {
		case string:
			texts = append(texts, value)
		case json.RawMessage:
			texts = append(texts, string(value))
		case map[string]string:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				texts = append(texts, value[key])
			}
		default:
			panic("projection: has no texts of " + f.Name)
		}
	}
	return texts
}

// Variables are the variables of an environment for the texts of its connectors.
type Variables struct {
	runnerconfig.Variables
	// Problems has the reasons of variables without a value, by name.
	Problems map[string]string
}

// VariablesOf reads the variables of an environment with the ID key. It reads values from Secrets, and
// decrypts sealed values, only for variables that one of the texts names.
func VariablesOf(
	ctx context.Context, from *base.Base, e *v1alpha1.Environment, key store.Key, keys base.Opener, texts []string,
) (out Variables, err error) {
	out.Variables, out.Problems, err = from.VariablesNamed(ctx, e, key, keys, func(name string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "${"+name+"}") })
	})
	return out, err
}

// ExpandTexts returns a connector of the code with the values of variables in its texts. It does not expand
// what a connector sends, see Credentials. It returns a *TextError if a text cannot be expanded. Expanded
// texts are stored unencrypted, so they must not contain sensitive values.
func ExpandTexts(c *v1alpha1.Connector, variables Variables) (*v1alpha1.Connector, error) {
	kind := crd.KindOf(c)
	if kind.Sends() || !NamesVariables(c) {
		return c, nil
	}
	config := crd.ConfigOf(c)
	var sensitive []string
	e := expand.Expansion{Lookup: func(name string) (string, bool) {
		variable, known := variables.Find(name)
		if known && variable.Sensitive {
			sensitive = append(sensitive, name)
		}
		return variable.Value, known
	}}
	for _, f := range kind.Fields() {
		if f.Variables == "" {
			continue
		}
		var err error
		switch value := f.In(&config).Addr().Interface().(type) {
		case *string:
			*value, err = e.Text(*value)
		case *json.RawMessage:
			if len(*value) > 0 {
				*value, err = e.JSON(*value)
			}
		default:
			panic("projection: cannot expand " + f.Name)
		}
		if err != nil {
			return nil, &TextError{fmt.Sprintf("%q %v", f.Name, err)}
		}
	}
	switch missing := e.Missing(); {
	case len(missing) > 0:
		return nil, missingVariableError(c, missing)
	case len(sensitive) > 0:
		return nil, &TextError{fmt.Sprintf("the variable %s is sensitive, but the configuration of a %s is stored unencrypted and shown to models; "+
			"use a variable that is not sensitive", sensitive[0], kind.Noun())}
	}
	out := c.DeepCopy()
	crd.SetConfig(&out.Spec, kind, config)
	return out, nil
}

// missingVariableError returns the error for missing variables, with the remedy.
func missingVariableError(c *v1alpha1.Connector, missing []string) error {
	names, them := "variable "+missing[0], "it"
	if last := len(missing) - 1; last > 0 {
		names, them = "variables "+strings.Join(missing[:last], ", ")+" and "+missing[last], "them"
	}
	return &TextError{fmt.Sprintf("Environment %q has no %s; set %s in its spec.variables, "+
		"with PUT /environments/{environment_id}/variables, or with `agentctl env set`", c.Spec.Environment, names, them)}
}

// IsTextError reports whether an expansion failed for a reason that a user can fix.
func IsTextError(err error) (problem string, is bool) {
	var text *TextError
	if errors.As(err, &text) {
		return text.Problem, true
	}
	return "", false
}
