// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

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
	if c.Spec.Cron == nil {
		return slices.ContainsFunc(sentTexts(c), expand.Names)
	}
	payload := ""
	if c.Spec.Cron.Payload != nil {
		payload = string(crd.CanonicalJSON(c.Spec.Cron.Payload.Raw))
	}
	return slices.ContainsFunc([]string{c.Spec.Cron.Schedule, c.Spec.Cron.TimeZone, c.Spec.Cron.Prompt, payload}, expand.Names)
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

// ExpandTexts returns a cron connector of the code with the values of variables in its texts, and any
// other connector unchanged. It returns a *TextError if a text cannot be expanded. Expanded texts are
// stored unencrypted, so they must not contain sensitive values.
func ExpandTexts(c *v1alpha1.Connector, variables Variables) (*v1alpha1.Connector, error) {
	if c.Spec.Cron == nil || !NamesVariables(c) {
		return c, nil
	}
	var sensitive []string
	e := expand.Expansion{Lookup: func(name string) (string, bool) {
		variable, known := variables.Find(name)
		if known && variable.Sensitive {
			sensitive = append(sensitive, name)
		}
		return variable.Value, known
	}}
	out := c.DeepCopy()
	spec := out.Spec.Cron
	for _, field := range []struct {
		name string
		text *string
	}{{"schedule", &spec.Schedule}, {"timezone", &spec.TimeZone}, {"prompt", &spec.Prompt}} {
		text, err := e.Text(*field.text)
		if err != nil {
			return nil, &TextError{fmt.Sprintf("%q %v", field.name, err)}
		}
		*field.text = text
	}
	if spec.Payload != nil {
		raw, err := e.JSON(crd.CanonicalJSON(spec.Payload.Raw))
		if err != nil {
			return nil, &TextError{fmt.Sprintf(`"payload" %v`, err)}
		}
		spec.Payload = &runtime.RawExtension{Raw: raw}
	}
	switch missing := e.Missing(); {
	case len(missing) > 0:
		return nil, missingVariableError(c, missing)
	case len(sensitive) > 0:
		return nil, &TextError{fmt.Sprintf("the variable %s is sensitive, but the configuration of a cron connector is stored unencrypted and shown to models; "+
			"use a variable that is not sensitive", sensitive[0])}
	}
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
