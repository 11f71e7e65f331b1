// SPDX-License-Identifier: Apache-2.0

package environments

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
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

// Variables serves the variables of environments.
type Variables struct {
	Service *rest.Service
	Keys    *secrets.Keys
}

// VariableSection has the endpoints of variables; Variables serves them.
var VariableSection = rest.Section[*Variables]{
	Name: "environments",
	Endpoints: []rest.EndpointOf[*Variables]{
		getVariables, replaceVariables,
	},
}

// Variable is the REST shape of a variable.
type Variable struct {
	Name      string           `json:"name" doc:"The name that prompts and connectors use." example:"REGION"`
	Value     string           `json:"value" doc:"The value; ******** for a sensitive variable, and for every variable without variables.view."`
	Sensitive bool             `json:"sensitive" doc:"Whether the value is hidden from people and models."`
	SecretRef rest.Null[KeyOf] `json:"secret_ref" doc:"The key of a Secret that holds the value, as secretKeyRef in the Environment object; null if there is none."`
}

func (Variable) Doc() string { return "A variable of an environment." }

// KeyOf is a key of a Secret.
type KeyOf struct {
	Name string `json:"name" doc:"The Secret's name."`
	Key  string `json:"key" doc:"The key in the Secret."`
}

func (KeyOf) Doc() string { return "A key of a Kubernetes Secret." }

// KeyOfInput is a KeyOf in a request.
type KeyOfInput KeyOf

func (KeyOfInput) Doc() string { return "A key of a Kubernetes Secret, as a response showed it." }

// VariableInput is a variable in a request.
type VariableInput struct {
	Name      string                  `json:"name" minLength:"1" maxLength:"128" pattern:"^[A-Z_][A-Z0-9_]*$" patternDescription:"the name of a variable: capital letters, digits and _, and no digit first" doc:"The name that prompts and connectors use." example:"REGION"`
	Value     *string                 `json:"value,omitempty" maxLength:"8192" doc:"The value, at most 8,192 bytes. An omitted or masked value keeps the stored value, as does an empty value of a sensitive variable." example:"eu-west-1"`
	Sensitive bool                    `json:"sensitive" doc:"Whether the value is hidden from people and models. The platform seals such a value."`
	SecretRef rest.Change[KeyOfInput] `json:"secret_ref,omitempty" doc:"The value from a response. Only secretKeyRef in the Environment object can set it."`
}

func (VariableInput) Doc() string { return "A variable to set." }

// VariablesInput is the request that replaces the variables of an environment.
type VariablesInput struct {
	rest.EnvironmentPath
	Body []VariableInput `maxItems:"100"`
}

var getVariables = rest.Handle((*Variables).getVariables, rest.Endpoint{
	Method: rest.Get, Path: "/environments/{environment_id}/variables", ID: "getVariables",
	Permissions: rest.Requires("variables.view"), Errors: rest.ReadErrors,
	HasETag: true,
	Summary: "List the variables of an environment",
	Doc: "Returns the variables by name. The value of a sensitive variable is `********`, whether the value is sealed or in a " +
		"Secret.",
	Example: rest.Example{Path: "/environments/{environment}/variables"},
})

func (s *Variables) getVariables(ctx context.Context, c *rest.Caller, in *rest.EnvironmentPath) (rest.Response[[]Variable], error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[[]Variable]{}, err
	}
	return rest.Response[[]Variable]{Body: showVariables(e), ETag: rest.ETag(e)}, nil
}

// showVariables returns the variables of an environment by name.
func showVariables(e *v1alpha1.Environment) []Variable {
	out := make([]Variable, 0, len(e.Spec.Variables))
	for i := range e.Spec.Variables {
		v := &e.Spec.Variables[i]
		shown := Variable{Name: string(v.Name), Value: rest.Masked, Sensitive: v.IsSensitive()}
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

// variablesAudited is the form of variables in the audit log, without values.
type variablesAudited struct {
	Variables []string `json:"variables"`
	// Changed are the added, changed and deleted variables.
	Changed []string `json:"changed,omitempty"`
}

var replaceVariables = rest.Handle((*Variables).replaceVariables, rest.Endpoint{
	Method: rest.Put, Path: "/environments/{environment_id}/variables", ID: "replaceVariables",
	Permissions: rest.Requires("variables.update"), Effect: rest.EffectUpdate, Errors: rest.UpdateErrors,
	HasETag: true,
	Summary: "Replace the variables of an environment",
	Doc: "Replaces the whole list. New names also need `variables.create`, and omitted names need `variables.delete`. Without " +
		"`variables.view` the response shows no values.\n\n" +
		"A variable keeps its value if `value` is left out or `********`. A sensitive variable also keeps its value if `value` " +
		"is empty. The call returns 422 if no value is stored. A sensitive variable becomes readable only with a new value. " +
		"All values together have at most 256 KiB.\n\n" +
		"The platform replaces the runner pods one by one, and runs continue on the new pods. Returns 409 if a GitOps " +
		"controller owns the variables. The audit log records names only.",
	Example: rest.Example{
		Path: "/environments/{spare_environment}/variables",
		Body: `[{"name":"REGION","value":"eu","sensitive":false},{"name":"TOKEN","value":"hush","sensitive":true}]`,
	},
})

func (s *Variables) replaceVariables(ctx context.Context, c *rest.Caller, in *VariablesInput) (rest.Response[[]Variable], error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[[]Variable]{}, err
	}
	was := e.Spec.Variables
	if _, err := s.Service.UpdateObject(ctx, c, e, func() error {
		was = e.Spec.Variables
		variables, err := s.editVariables(c, e, in.Body)
		if err == nil {
			err = s.mayReplace(ctx, c, namesOf(was), namesOf(variables))
		}
		e.Spec.Variables = variables
		return err
	}); err != nil {
		return rest.Response[[]Variable]{}, err
	}
	before, after := variablesAudited{Variables: namesOf(was)}, variablesAudited{Variables: namesOf(e.Spec.Variables), Changed: changedVariables(was, e.Spec.Variables)}
	rest.RecordChange(ctx, auditedEnvironment(e), before, after)
	out := rest.Response[[]Variable]{Body: showVariables(e), ETag: rest.ETag(e)}
	view, err := s.Service.HasPermission(ctx, c, "variables.view")
	for i := range out.Body {
		if !view {
			out.Body[i].Value = rest.Masked
		}
	}
	return out, err
}

// mayReplace checks the permissions that a new list needs besides variables.update: variables.create for new names, and
// variables.delete for omitted names.
func (s *Variables) mayReplace(ctx context.Context, c *rest.Caller, was, is []string) error {
	before, after := sets.New(was...), sets.New(is...)
	if !before.IsSuperset(after) {
		if err := s.Service.Require(ctx, c, "variables.create"); err != nil {
			return err
		}
	}
	if !after.IsSuperset(before) {
		return s.Service.Require(ctx, c, "variables.delete")
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

// changedVariables returns the names of variables that differ before and after.
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

// editVariables returns the variables of a request: existing variables in their order, then new ones. It returns 422
// with all invalid variables.
func (s *Variables) editVariables(c *rest.Caller, e *v1alpha1.Environment, sent []VariableInput) ([]v1alpha1.EnvironmentVariable, error) {
	var problems []rest.FieldError
	asked := map[v1alpha1.VariableName]v1alpha1.EnvironmentVariable{}
	for i := range sent {
		v, wrong, err := s.editVariable(c, e, &sent[i])
		if err != nil {
			return nil, err
		}
		if _, twice := asked[v.Name]; twice {
			wrong = &rest.FieldError{Location: "name", Message: "is in the list twice"}
		}
		if wrong != nil {
			problems = append(problems, rest.FieldError{Location: fmt.Sprintf("body[%d].%s", i, wrong.Location), Message: wrong.Message})
		}
		asked[v.Name] = v
	}
	if len(problems) > 0 {
		return nil, rest.Invalid(problems...)
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

// editVariable returns a variable of a request, or its field error.
func (s *Variables) editVariable(c *rest.Caller, e *v1alpha1.Environment, in *VariableInput) (v1alpha1.EnvironmentVariable, *rest.FieldError, error) {
	stored := e.Variable(v1alpha1.VariableName(in.Name))
	asked := v1alpha1.EnvironmentVariable{Name: v1alpha1.VariableName(in.Name), Sensitive: in.Sensitive}
	stays := in.Value == nil || *in.Value == rest.Masked || *in.Value == "" && in.Sensitive
	wrong := func(field, message string) (v1alpha1.EnvironmentVariable, *rest.FieldError, error) {
		return asked, &rest.FieldError{Location: field, Message: message}, nil
	}
	switch ref := in.SecretRef.To.Value; {
	case ref != nil && (stored == nil || stored.SecretKeyRef == nil || *ref != KeyOfInput{string(stored.SecretKeyRef.Name), stored.SecretKeyRef.Key}):
		return wrong("secret_ref", "can be set only by secretKeyRef of the Environment object")
	case ref != nil && !stays:
		return wrong("value", "comes from the Secret in secret_ref: change it there, or send secret_ref null")
	case !stays:
		return s.withValue(c, e, asked, *in.Value)
	case in.SecretRef.Given && ref == nil && stored != nil && stored.SecretKeyRef != nil:
		return wrong("value", "is required because secret_ref is null: send a value, or leave secret_ref out to keep the value of the Secret")
	case stored == nil:
		return wrong("value", "is required: the variable has no stored value to keep")
	case stored.IsSensitive() && !in.Sensitive:
		return wrong("sensitive", "can become false only with a new value: send the value")
	case !stored.IsSensitive() && in.Sensitive:
		return s.withValue(c, e, asked, *stored.Value)
	}
	kept, err := s.resealed(c, e, *stored)
	return kept, nil, err
}

// withValue sets the value of a variable, and seals it if the variable is sensitive.
func (s *Variables) withValue(
	c *rest.Caller, e *v1alpha1.Environment, v v1alpha1.EnvironmentVariable, value string,
) (v1alpha1.EnvironmentVariable, *rest.FieldError, error) {
	if len(value) > runnerconfig.MaxVariable {
		return v, &rest.FieldError{Location: "value", Message: fmt.Sprintf("must have at most %d bytes", runnerconfig.MaxVariable)}, nil
	}
	if !v.Sensitive {
		v.Value = &value
		return v, nil, nil
	}
	sealed, err := s.sealVariable(c, uuid.MustParse(rest.ObjectID(e)), v.Name, value)
	v.SealedValue = sealed
	return v, nil, err
}

// sealVariable seals the value of a variable for an environment.
func (s *Variables) sealVariable(c *rest.Caller, environment uuid.UUID, name v1alpha1.VariableName, value string) (string, error) {
	sealed, _, err := s.Keys.Seal(secrets.VariableField(c.ProjectID, environment, string(name)), []byte(value))
	if err != nil {
		return "", fmt.Errorf("sealing the variable %q: %w", name, err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// resealed returns a stored variable, sealed again if it has an earlier key, so that the key can be removed.
func (s *Variables) resealed(c *rest.Caller, e *v1alpha1.Environment, v v1alpha1.EnvironmentVariable) (v1alpha1.EnvironmentVariable, error) {
	if v.SealedValue == "" {
		return v, nil
	}
	id := uuid.MustParse(rest.ObjectID(e))
	value, anew := s.Keys.OpenOutdated(secrets.VariableField(c.ProjectID, id, string(v.Name)), v.SealedValue)
	if !anew {
		return v, nil
	}
	sealed, err := s.sealVariable(c, id, v.Name, value)
	v.SealedValue = sealed
	return v, err
}

// mustFit returns 422 if the known values of the variables are too large together.
func (s *Variables) mustFit(c *rest.Caller, e *v1alpha1.Environment, variables []v1alpha1.EnvironmentVariable) error {
	var known []runnerconfig.Variable
	for i := range variables {
		if value, err := s.variableValue(c, e, &variables[i]); err == nil {
			known = append(known, runnerconfig.Variable{Name: string(variables[i].Name), Value: value})
		}
	}
	if name, problem := runnerconfig.CheckVariables(known); problem != "" {
		return rest.InvalidField("body", strings.TrimSpace(name+" "+problem))
	}
	return nil
}

// variableValue returns the value of a variable in the object, or "" if it is in a Secret.
func (s *Variables) variableValue(c *rest.Caller, e *v1alpha1.Environment, v *v1alpha1.EnvironmentVariable) (string, error) {
	switch {
	case v.Value != nil:
		return *v.Value, nil
	case v.SealedValue == "":
		return "", nil
	}
	raw, err := base64.StdEncoding.DecodeString(v.SealedValue)
	if err != nil {
		return "", secrets.ErrUnsealable
	}
	plain, err := s.Keys.Open(secrets.VariableField(c.ProjectID, uuid.MustParse(rest.ObjectID(e)), string(v.Name)), raw)
	return string(plain), err
}

// copyVariables returns the variables and the OAuth apps of another environment for one with that ID. Sealed values are
// sealed again, because they open in one environment only. Client secrets stay in their Secrets.
func (s *Variables) copyVariables(
	ctx context.Context, c *rest.Caller, from rest.ID, to v1alpha1.UUID,
) ([]v1alpha1.EnvironmentVariable, []v1alpha1.OAuthApp, error) {
	source, err := s.Service.Environment(ctx, c, from)
	if err != nil {
		return nil, nil, err
	}
	spec := source.DeepCopy().Spec
	variables := spec.Variables
	for i := range variables {
		v := &variables[i]
		if v.SealedValue == "" {
			continue
		}
		value, err := s.variableValue(c, source, v)
		if err != nil {
			return nil, nil, rest.NewProblem(http.StatusConflict, httpserver.CodeConflict,
				fmt.Sprintf("the value of variable %q in the source environment cannot be decrypted; set the value there again", v.Name))
		}
		if v.SealedValue, err = s.sealVariable(c, uuid.MustParse(string(to)), v.Name, value); err != nil {
			return nil, nil, err
		}
	}
	return variables, spec.OAuthApps, nil
}
