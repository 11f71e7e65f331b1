// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/expand"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// TextError says which text of a connector cannot be expanded, and why.
type TextError struct{ Problem string }

// Error is the problem, in words for a person.
func (e *TextError) Error() string { return e.Problem }

// NamesVariables says whether a text of a connector of the code has something to expand.
func NamesVariables(c *v1alpha1.Connector) bool {
	if c.Spec.Cron == nil || !c.DefinedInCode() {
		return false
	}
	payload := ""
	if c.Spec.Cron.Payload != nil {
		payload = string(canonical(c.Spec.Cron.Payload.Raw))
	}
	return slices.ContainsFunc([]string{c.Spec.Cron.Schedule, c.Spec.Cron.TimeZone, c.Spec.Cron.Prompt, payload}, expand.Names)
}

// VariablesOf are the variables of an environment that texts of its connectors may name. Values
// in Secrets and sealed ones are not among them: they are sensitive, and so refused there, and
// what is wrong with one concerns no connector.
func VariablesOf(e *v1alpha1.Environment) runnerconfig.Variables {
	out := make([]runnerconfig.Variable, len(e.Spec.Variables))
	for i := range e.Spec.Variables {
		v := &e.Spec.Variables[i]
		out[i] = runnerconfig.Variable{Name: string(v.Name), Value: ptr.Deref(v.Value, ""), Sensitive: v.IsSensitive()}
	}
	return runnerconfig.Sorted(out)
}

// Expanded is a connector of the code with the values of variables in its texts; any other one
// is itself. Where a text cannot be expanded it is a *TextError. What is expanded is stored
// readable, so that sensitive values may not stand there.
func Expanded(c *v1alpha1.Connector, variables runnerconfig.Variables) (*v1alpha1.Connector, error) {
	if !NamesVariables(c) {
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
		return nil, &TextError{fmt.Sprintf("Environment %q has no variable %s: add it to spec.variables there", c.Spec.Environment, strings.Join(missing, ", "))}
	case len(sensitive) > 0:
		return nil, &TextError{fmt.Sprintf("the variable %s is sensitive, and the configuration of a cron connector is stored and shown to models as it is: "+
			"name another variable, or one that is not sensitive", sensitive[0])}
	}
	return out, nil
}

// IsTextError says whether an expansion failed for what a person can mend.
func IsTextError(err error) (problem string, is bool) {
	var text *TextError
	if errors.As(err, &text) {
		return text.Problem, true
	}
	return "", false
}
