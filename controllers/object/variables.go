// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// Opener opens what is sealed for a field; seal.ErrUnsealable of what is not.
type Opener interface {
	Open(field seal.Field, sealed []byte) ([]byte, error)
}

// Variables are those of an environment, which holds the id in key, with their values: of the
// object, of a Secret of the project's, or opened by keys. A missing Secret or key of one is a
// *SecretError, a value that cannot be opened or is too long a *StalledError.
func (b *Base) Variables(ctx context.Context, e *v1alpha1.Environment, key store.Key, keys Opener) (runnerconfig.Variables, error) {
	var (
		out     []runnerconfig.Variable
		secrets = map[v1alpha1.Name]map[string][]byte{} // each is read once
	)
	for i := range e.Spec.Variables {
		v := &e.Spec.Variables[i]
		value, err := b.variable(ctx, e.Namespace, v, key, keys, secrets)
		if err != nil {
			return runnerconfig.Variables{}, err
		}
		out = append(out, runnerconfig.Variable{Name: string(v.Name), Value: value, Sensitive: v.IsSensitive()})
	}
	if name, problem := runnerconfig.CheckVariables(out); problem != "" {
		return runnerconfig.Variables{}, invalidVariable(name, problem)
	}
	return runnerconfig.Sorted(out), nil
}

// VariablesNamed are those of an environment that stand in the object, and those of others that
// named picks, with their values. Of one that has none, problems say why, by its name: it is of
// concern to those alone that name it.
func (b *Base) VariablesNamed(
	ctx context.Context, e *v1alpha1.Environment, key store.Key, keys Opener, named func(name string) bool,
) (out runnerconfig.Variables, problems map[string]string, err error) {
	var variables []runnerconfig.Variable
	problems = map[string]string{}
	secrets := map[v1alpha1.Name]map[string][]byte{}
	for i := range e.Spec.Variables {
		v := &e.Spec.Variables[i]
		one := runnerconfig.Variable{Name: string(v.Name), Sensitive: v.IsSensitive()}
		if v.Value != nil || named(one.Name) {
			if one.Value, err = b.variable(ctx, e.Namespace, v, key, keys, secrets); err != nil {
				problem, lacking := lacks(err)
				if !lacking {
					return out, nil, err
				}
				problems[one.Name] = problem
			} else if _, problem := runnerconfig.CheckVariables([]runnerconfig.Variable{one}); problem != "" {
				problems[one.Name] = fmt.Sprintf("the variable %q %s", one.Name, problem)
			}
		}
		variables = append(variables, one)
	}
	return runnerconfig.Sorted(variables), problems, nil
}

// lacks says whether a variable has no value for what somebody can mend.
func lacks(err error) (problem string, is bool) {
	var (
		secret  *SecretError
		stalled *StalledError
	)
	return err.Error(), errors.As(err, &secret) || errors.As(err, &stalled)
}

// variable is the value of one.
func (b *Base) variable(
	ctx context.Context, namespace string, v *v1alpha1.EnvironmentVariable, key store.Key, keys Opener, secrets map[v1alpha1.Name]map[string][]byte,
) (string, error) {
	switch {
	case v.Value != nil:
		return *v.Value, nil
	case v.SecretKeyRef == nil:
		return opened(v, key, keys)
	}
	ref := v.SecretKeyRef
	if _, read := secrets[ref.Name]; !read {
		secret, err := b.WholeSecret(ctx, namespace, string(ref.Name))
		if err != nil {
			return "", err
		}
		if of := metav1.GetControllerOf(secret); of != nil && of.Kind == "Environment" && of.APIVersion == v1alpha1.GroupVersion.String() {
			return "", invalidVariable(string(v.Name), fmt.Sprintf(
				"is to come from Secret %q, which the platform makes of an Environment for its runners: name a Secret of your own", ref.Name))
		}
		secrets[ref.Name] = secret.Data
	}
	value, err := valueIn(secrets[ref.Name], *ref)
	if err == nil && !utf8.ValidString(value) {
		err = &SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("its key %q is no text (UTF-8), as the variable %q must be", ref.Key, v.Name)}
	}
	return value, err
}

// opened is the value of a variable that the facade has sealed into the object.
func opened(v *v1alpha1.EnvironmentVariable, key store.Key, keys Opener) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(v.SealedValue)
	if err == nil {
		raw, err = keys.Open(seal.VariableField(key.ProjectID, key.ID, string(v.Name)), raw)
	} else {
		err = seal.ErrUnsealable
	}
	if errors.Is(err, seal.ErrUnsealable) {
		return "", invalidVariable(string(v.Name), "has a sealedValue that cannot be opened: only the REST API can seal it, for one variable of one environment, "+
			"as long as the platform has the key; send the value there again, or keep it in a Secret that secretKeyRef names")
	}
	if err != nil {
		return "", fmt.Errorf("opening the variable %q: %w", v.Name, err)
	}
	return string(raw), nil
}

// invalidVariable stalls what needs the variable of that name, or all of them where it is "".
func invalidVariable(name, problem string) error {
	of := "spec.variables"
	if name != "" {
		of = fmt.Sprintf("spec.variables: %q", name)
	}
	return &StalledError{Reason: v1alpha1.ReasonInvalidSpec, Message: of + " " + problem + "; what was valid before, if anything, stays in effect"}
}
