// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/seal"
)

// Variable is the REST shape of a variable.
type Variable struct {
	Name      string      `json:"name" doc:"What prompts and connectors call it by." example:"REGION"`
	Value     string      `json:"value" doc:"Its value; ******** of a sensitive one, and of each where variables.view is missing."`
	Sensitive bool        `json:"sensitive" doc:"Whether nobody is shown the value, and no model is told it."`
	SecretRef Null[KeyOf] `json:"secret_ref" doc:"The key of a Secret that has the value, as secretKeyRef of the Environment object says; null where none does."`
}

// KeyOf is a key of a Secret.
type KeyOf struct {
	Name string `json:"name" doc:"The Secret's name."`
	Key  string `json:"key" doc:"The key in it."`
}

// KeyOfInput is a KeyOf that is sent back.
type KeyOfInput KeyOf

// VariableInput is a variable that an environment is to have.
type VariableInput struct {
	Name      string             `json:"name" minLength:"1" maxLength:"128" pattern:"^[A-Z_][A-Z0-9_]*$" patternDescription:"the name of a variable: capital letters, digits and _, and no digit first" doc:"What prompts and connectors call it by." example:"REGION"`
	Value     *string            `json:"value,omitempty" maxLength:"8192" doc:"Its value, of at most 8,192 bytes. Left out or ******** it stays as it is, and so does a sensitive one where it is empty." example:"eu-west-1"`
	Sensitive bool               `json:"sensitive" doc:"Whether nobody is shown the value, and no model is told it; it is kept sealed then."`
	SecretRef Change[KeyOfInput] `json:"secret_ref,omitempty" doc:"As it was answered: secretKeyRef of the Environment object alone sets it."`
}

// VariablesInput is the request that replaces the variables of an environment.
type VariablesInput struct {
	EnvironmentPath
	Body []VariableInput `maxItems:"100"`
}

func (s *Server) getVariables(ctx context.Context, c *caller, in *EnvironmentPath) (answer[[]Variable], error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[[]Variable]{}, err
	}
	return answer[[]Variable]{Body: showVariables(e), ETag: etag(e)}, nil
}

// showVariables are an environment's variables by name.
func showVariables(e *v1alpha1.Environment) []Variable {
	out := make([]Variable, 0, len(e.Spec.Variables))
	for i := range e.Spec.Variables {
		v := &e.Spec.Variables[i]
		shown := Variable{Name: string(v.Name), Value: masked, Sensitive: v.IsSensitive()}
		if !shown.Sensitive {
			shown.Value = *v.Value
		}
		if ref := v.SecretKeyRef; ref != nil {
			shown.SecretRef.Value = &KeyOf{Name: string(ref.Name), Key: ref.Key}
		}
		out = append(out, shown)
	}
	slices.SortFunc(out, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// variablesAudited is what the audit log keeps of an environment's variables: never a value.
type variablesAudited struct {
	Variables []string `json:"variables"`
	// Changed are those that were added or have another value, or none any more.
	Changed []string `json:"changed,omitempty"`
}

func (s *Server) replaceVariables(ctx context.Context, c *caller, in *VariablesInput) (answer[[]Variable], error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[[]Variable]{}, err
	}
	was := e.Spec.Variables
	if _, err := s.amend(ctx, c, e, func() error {
		was = e.Spec.Variables
		variables, err := s.editVariables(c, e, in.Body)
		if err == nil {
			err = s.mayReplace(ctx, c, namesOf(was), namesOf(variables))
		}
		e.Spec.Variables = variables
		return err
	}); err != nil {
		return answer[[]Variable]{}, err
	}
	before, after := variablesAudited{Variables: namesOf(was)}, variablesAudited{Variables: namesOf(e.Spec.Variables), Changed: changedVariables(was, e.Spec.Variables)}
	changed(ctx, auditedEnvironment(e), before, after)
	out := answer[[]Variable]{Body: showVariables(e), ETag: etag(e)}
	view, err := s.may(ctx, c, "variables.view")
	for i := range out.Body {
		if !view {
			out.Body[i].Value = masked
		}
	}
	return out, err
}

// mayReplace asks for the permissions beside variables.update that a new list needs: to create
// names that it adds, and to delete those that it leaves out.
func (s *Server) mayReplace(ctx context.Context, c *caller, was, is []string) error {
	before, after := sets.New(was...), sets.New(is...)
	if !before.IsSuperset(after) {
		if err := s.require(ctx, c, "variables.create"); err != nil {
			return err
		}
	}
	if !after.IsSuperset(before) {
		return s.require(ctx, c, "variables.delete")
	}
	return nil
}

func namesOf(variables []v1alpha1.EnvironmentVariable) []string {
	out := make([]string, 0, len(variables))
	for _, v := range variables {
		out = append(out, string(v.Name))
	}
	slices.Sort(out)
	return out
}

// changedVariables are the names of those that are not the same before and after.
func changedVariables(before, after []v1alpha1.EnvironmentVariable) []string {
	known := map[v1alpha1.VariableName]v1alpha1.EnvironmentVariable{}
	for _, v := range before {
		known[v.Name] = v
	}
	var out []string
	for _, v := range after {
		if was, there := known[v.Name]; !there || !reflect.DeepEqual(was, v) {
			out = append(out, string(v.Name))
		}
		delete(known, v.Name)
	}
	for name := range known {
		out = append(out, string(name))
	}
	slices.Sort(out)
	return out
}

// editVariables are the variables that an environment is asked to have: those that it has in their
// order, then new ones. 422 names each that cannot be.
func (s *Server) editVariables(c *caller, e *v1alpha1.Environment, sent []VariableInput) ([]v1alpha1.EnvironmentVariable, error) {
	var problems []FieldError
	asked := map[v1alpha1.VariableName]v1alpha1.EnvironmentVariable{}
	for i := range sent {
		v, wrong, err := s.editVariable(c, e, &sent[i])
		if err != nil {
			return nil, err
		}
		if _, twice := asked[v.Name]; twice {
			wrong = &FieldError{Location: "name", Message: "is there twice"}
		}
		if wrong != nil {
			problems = append(problems, FieldError{Location: fmt.Sprintf("body[%d].%s", i, wrong.Location), Message: wrong.Message})
		}
		asked[v.Name] = v
	}
	if len(problems) > 0 {
		return nil, invalid(problems...)
	}
	var out []v1alpha1.EnvironmentVariable
	for _, v := range e.Spec.Variables {
		if now, stays := asked[v.Name]; stays {
			out = append(out, now)
			delete(asked, v.Name)
		}
	}
	for i := range sent {
		if v, isNew := asked[v1alpha1.VariableName(sent[i].Name)]; isNew {
			out = append(out, v)
		}
	}
	return out, s.mustFit(c, e, out)
}

// editVariable is one variable as it is asked for, or what is wrong with it.
func (s *Server) editVariable(c *caller, e *v1alpha1.Environment, in *VariableInput) (v1alpha1.EnvironmentVariable, *FieldError, error) {
	stored := e.Variable(v1alpha1.VariableName(in.Name))
	asked := v1alpha1.EnvironmentVariable{Name: v1alpha1.VariableName(in.Name), Sensitive: in.Sensitive}
	stays := in.Value == nil || *in.Value == masked || *in.Value == "" && in.Sensitive
	wrong := func(field, message string) (v1alpha1.EnvironmentVariable, *FieldError, error) {
		return asked, &FieldError{Location: field, Message: message}, nil
	}
	switch ref := in.SecretRef.To.Value; {
	case ref != nil && (stored == nil || stored.SecretKeyRef == nil || *ref != KeyOfInput{string(stored.SecretKeyRef.Name), stored.SecretKeyRef.Key}):
		return wrong("secret_ref", "is set by secretKeyRef of the Environment object alone")
	case ref != nil && !stays:
		return wrong("value", "is that of the Secret in secret_ref: change it there, or send secret_ref null")
	case !stays:
		return s.withValue(c, e, asked, *in.Value)
	case in.SecretRef.Given && ref == nil && stored != nil && stored.SecretKeyRef != nil:
		return wrong("value", "is missing: secret_ref null takes away the Secret that it comes from; send the value that it is to have, or leave secret_ref out to keep the Secret's")
	case stored == nil:
		return wrong("value", "is missing: there is no stored one that it could keep")
	case stored.IsSensitive() && !in.Sensitive:
		return wrong("sensitive", "stays true as long as the value stays: send the value to make it readable")
	case !stored.IsSensitive() && in.Sensitive:
		return s.withValue(c, e, asked, *stored.Value)
	}
	kept, err := s.resealed(c, e, *stored)
	return kept, nil, err
}

// withValue gives a variable a value, sealed where it is sensitive.
func (s *Server) withValue(
	c *caller, e *v1alpha1.Environment, v v1alpha1.EnvironmentVariable, value string,
) (v1alpha1.EnvironmentVariable, *FieldError, error) {
	if len(value) > runnerconfig.MaxVariable {
		return v, &FieldError{Location: "value", Message: fmt.Sprintf("has more than the %d bytes that it may have", runnerconfig.MaxVariable)}, nil
	}
	if !v.Sensitive {
		v.Value = &value
		return v, nil, nil
	}
	sealed, err := s.sealVariable(c, uuid.MustParse(idOf(e)), v.Name, value)
	v.SealedValue = sealed
	return v, nil, err
}

// sealVariable seals the value of a variable for an environment.
func (s *Server) sealVariable(c *caller, environment uuid.UUID, name v1alpha1.VariableName, value string) (string, error) {
	sealed, _, err := s.platform.Seal(seal.VariableField(c.projectID, environment, string(name)), []byte(value))
	if err != nil {
		return "", fmt.Errorf("sealing the variable %q: %w", name, err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// resealed is a variable as it is stored, sealed anew where an earlier key has sealed it, so that it
// does not hang on that for ever.
func (s *Server) resealed(c *caller, e *v1alpha1.Environment, v v1alpha1.EnvironmentVariable) (v1alpha1.EnvironmentVariable, error) {
	if v.SealedValue == "" {
		return v, nil
	}
	id := uuid.MustParse(idOf(e))
	value, anew := s.outdated(seal.VariableField(c.projectID, id, string(v.Name)), v.SealedValue)
	if !anew {
		return v, nil
	}
	sealed, err := s.sealVariable(c, id, v.Name, value)
	v.SealedValue = sealed
	return v, err
}

// mustFit answers 422 for variables that are too much together, as far as their values are known here.
func (s *Server) mustFit(c *caller, e *v1alpha1.Environment, variables []v1alpha1.EnvironmentVariable) error {
	var known []runnerconfig.Variable
	for i := range variables {
		if value, err := s.variableValue(c, e, &variables[i]); err == nil {
			known = append(known, runnerconfig.Variable{Name: string(variables[i].Name), Value: value})
		}
	}
	if name, problem := runnerconfig.CheckVariables(known); problem != "" {
		return wrong("body", strings.TrimSpace(name+" "+problem))
	}
	return nil
}

// variableValue is the value of a variable that stands in the object, sealed or not; "" of one in a Secret.
func (s *Server) variableValue(c *caller, e *v1alpha1.Environment, v *v1alpha1.EnvironmentVariable) (string, error) {
	switch {
	case v.Value != nil:
		return *v.Value, nil
	case v.SealedValue == "":
		return "", nil
	}
	raw, err := base64.StdEncoding.DecodeString(v.SealedValue)
	if err != nil {
		return "", seal.ErrUnsealable
	}
	plain, err := s.platform.Open(seal.VariableField(c.projectID, uuid.MustParse(idOf(e)), string(v.Name)), raw)
	return string(plain), err
}

// copyVariables are the variables of another environment for one with that id: what is sealed there is
// sealed anew, for it opens nowhere else.
func (s *Server) copyVariables(ctx context.Context, c *caller, from ID, to v1alpha1.UUID) ([]v1alpha1.EnvironmentVariable, error) {
	source, err := s.environment(ctx, c, from)
	if err != nil {
		return nil, err
	}
	variables := source.DeepCopy().Spec.Variables
	for i := range variables {
		v := &variables[i]
		if v.SealedValue == "" {
			continue
		}
		value, err := s.variableValue(c, source, v)
		if err != nil {
			return nil, problem(http.StatusConflict, httpserver.CodeConflict,
				fmt.Sprintf("the variable %q of that environment cannot be opened and not be copied; send its value there again", v.Name))
		}
		if v.SealedValue, err = s.sealVariable(c, uuid.MustParse(string(to)), v.Name, value); err != nil {
			return nil, err
		}
	}
	return variables, nil
}
