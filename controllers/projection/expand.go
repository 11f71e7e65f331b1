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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/expand"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

// TextError says which text of a connector cannot be expanded, and why.
type TextError struct{ Problem string }

// Error is the problem, in words for a person.
func (e *TextError) Error() string { return e.Problem }

// NamesVariables says whether a text of a connector of the code has something to expand.
func NamesVariables(c *v1alpha1.Connector) bool {
	if !c.DefinedInCode() {
		return false
	}
	if c.Spec.Cron == nil {
		return slices.ContainsFunc(sentBy(c), expand.Names)
	}
	payload := ""
	if c.Spec.Cron.Payload != nil {
		payload = string(canonical(c.Spec.Cron.Payload.Raw))
	}
	return slices.ContainsFunc([]string{c.Spec.Cron.Schedule, c.Spec.Cron.TimeZone, c.Spec.Cron.Prompt, payload}, expand.Names)
}

// Variables are those of an environment that texts of its connectors may name.
type Variables struct {
	runnerconfig.Variables
	// Problems say of those that have no value why, by their names.
	Problems map[string]string
}

// VariablesOf reads the variables of an environment, which holds the id in key: the values that
// are in Secrets, or sealed, of those alone that one of the texts may name.
func VariablesOf(
	ctx context.Context, from *object.Base, e *v1alpha1.Environment, key store.Key, keys object.Opener, texts []string,
) (out Variables, err error) {
	out.Variables, out.Problems, err = from.VariablesNamed(ctx, e, key, keys, func(name string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "${"+name+"}") })
	})
	return out, err
}

// Expanded is a cron connector of the code with the values of variables in its texts; any other
// one is itself. Where a text cannot be expanded it is a *TextError. What is expanded is stored
// readable, so that sensitive values may not stand there.
func Expanded(c *v1alpha1.Connector, variables Variables) (*v1alpha1.Connector, error) {
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
		raw, err := e.JSON(canonical(spec.Payload.Raw))
		if err != nil {
			return nil, &TextError{fmt.Sprintf(`"payload" %v`, err)}
		}
		spec.Payload = &runtime.RawExtension{Raw: raw}
	}
	switch missing := e.Missing(); {
	case len(missing) > 0:
		return nil, noVariable(c, missing)
	case len(sensitive) > 0:
		return nil, &TextError{fmt.Sprintf("the variable %s is sensitive, and the configuration of a cron connector is stored and shown to models as it is: "+
			"name another variable, or one that is not sensitive", sensitive[0])}
	}
	return out, nil
}

// noVariable says which variables an environment lacks, and where to set them.
func noVariable(c *v1alpha1.Connector, missing []string) error {
	names, them := "variable "+missing[0], "it"
	if last := len(missing) - 1; last > 0 {
		names, them = "variables "+strings.Join(missing[:last], ", ")+" and "+missing[last], "them"
	}
	return &TextError{fmt.Sprintf("Environment %q does not have the %s: set %s in its spec.variables, "+
		"by PUT /environments/{environment_id}/variables, or by `agentctl env set`", c.Spec.Environment, names, them)}
}

// IsTextError says whether an expansion failed for what a person can mend.
func IsTextError(err error) (problem string, is bool) {
	var text *TextError
	if errors.As(err, &text) {
		return text.Problem, true
	}
	return "", false
}
