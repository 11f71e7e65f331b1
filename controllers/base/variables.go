// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// Opener decrypts a sealed field. It returns secrets.ErrUnsealable if that is impossible.
type Opener interface {
	Open(field secrets.Field, sealed []byte) ([]byte, error)
}

// Variables returns the variables of an environment with their values, from the object, from Secrets of
// the project, or decrypted with keys, and its OAuth apps. key is the environment's ID. A missing Secret or
// key is a *SecretError. A value that cannot be decrypted or is too long is a *StalledError.
func (b *Base) Variables(ctx context.Context, e *v1alpha1.Environment, key store.Key, keys Opener) (runnerconfig.Variables, error) {
	var (
		out     []runnerconfig.Variable
		secrets = map[v1alpha1.Name]map[string][]byte{} // read each Secret once
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
	apps, err := b.oauthApps(ctx, e, secrets)
	if err != nil {
		return runnerconfig.Variables{}, err
	}
	return runnerconfig.Sorted(out).WithOAuthApps(apps), nil
}

// VariablesNamed returns the variables whose value is in the object, and the other ones that named
// selects. problems has the reason for each variable without a value, by name, because it only matters
// to users of that variable.
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
				problem, lacking := missingValue(err)
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

// missingValue reports whether a variable has no value for a reason that a user can fix.
func missingValue(err error) (problem string, is bool) {
	var (
		secret  *SecretError
		stalled *StalledError
	)
	return err.Error(), errors.As(err, &secret) || errors.As(err, &stalled)
}

// variable returns the value of a variable.
func (b *Base) variable(
	ctx context.Context, namespace string, v *v1alpha1.EnvironmentVariable, key store.Key, keys Opener, secrets map[v1alpha1.Name]map[string][]byte,
) (string, error) {
	switch {
	case v.Value != nil:
		return *v.Value, nil
	case v.SecretKeyRef == nil:
		return openValue(v, key, keys)
	}
	value, isPlatforms, err := b.userSecretValue(ctx, namespace, *v.SecretKeyRef, secrets)
	if isPlatforms {
		err = invalidVariable(string(v.Name), platformSecretProblem(v.SecretKeyRef.Name))
	}
	if err == nil && !utf8.ValidString(value) {
		ref := v.SecretKeyRef
		err = &SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("its key %q is not UTF-8 text, which the variable %q needs", ref.Key, v.Name)}
	}
	return value, err
}

// userSecretValue returns the value of one key of a Secret. isPlatforms is true, and value is empty, for a Secret
// that the platform creates for runners. secrets has the data of the Secrets that were read.
func (b *Base) userSecretValue(
	ctx context.Context, namespace string, ref v1alpha1.SecretKeyReference, secrets map[v1alpha1.Name]map[string][]byte,
) (value string, isPlatforms bool, err error) {
	if _, read := secrets[ref.Name]; !read {
		secret, err := b.SecretObject(ctx, namespace, string(ref.Name))
		if err != nil {
			return "", false, err
		}
		if of := metav1.GetControllerOf(secret); of != nil && of.Kind == "Environment" && of.APIVersion == v1alpha1.GroupVersion.String() {
			return "", true, nil
		}
		secrets[ref.Name] = secret.Data
	}
	value, err = valueOfKey(secrets[ref.Name], ref)
	return value, false, err
}

// platformSecretProblem continues the name of a value that is in a Secret of the platform.
func platformSecretProblem(secret v1alpha1.Name) string {
	return fmt.Sprintf("names Secret %q, which the platform creates for runners; use a Secret of your own", secret)
}

// openValue returns the decrypted value of a sealed variable.
func openValue(v *v1alpha1.EnvironmentVariable, key store.Key, keys Opener) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(v.SealedValue)
	if err == nil {
		raw, err = keys.Open(secrets.VariableField(key.ProjectID, key.ID, string(v.Name)), raw)
	} else {
		err = secrets.ErrUnsealable
	}
	if errors.Is(err, secrets.ErrUnsealable) {
		return "", invalidVariable(string(v.Name), "has a sealedValue that cannot be decrypted. The REST API seals it for one variable of one environment, "+
			"with a key that the platform must still have; send the value to the REST API again, or keep it in a Secret that secretKeyRef names")
	}
	if err != nil {
		return "", fmt.Errorf("decrypting the variable %q: %w", v.Name, err)
	}
	return string(raw), nil
}

// invalidVariable returns an error that stalls the users of a variable, or of all variables if name is
// "".
func invalidVariable(name, problem string) error {
	of := "spec.variables"
	if name != "" {
		of = fmt.Sprintf("spec.variables: %q", name)
	}
	return &StalledError{Reason: v1alpha1.ReasonInvalidSpec, Message: v1alpha1.InvalidSpecMessage(of + " " + problem)}
}

// oauthApps returns the OAuth apps of an environment with their client secrets. secrets has the data of the Secrets that
// were read.
func (b *Base) oauthApps(
	ctx context.Context, e *v1alpha1.Environment, secrets map[v1alpha1.Name]map[string][]byte,
) (out []runnerconfig.OAuthApp, err error) {
	for i := range e.Spec.OAuthApps {
		app := &e.Spec.OAuthApps[i]
		// Objects from before the rule of the field can have another URL.
		if target, err := url.Parse(app.TokenURL); err != nil || target.Hostname() == "" {
			return nil, invalidOAuthApp(app.Name, "has a tokenURL that is not a valid URL; correct its host, its port or its % escapes")
		}
		ref := app.ClientSecretRef
		value, isPlatforms, err := b.userSecretValue(ctx, e.Namespace, ref, secrets)
		switch {
		case err != nil:
			return nil, err
		case isPlatforms:
			return nil, invalidOAuthApp(app.Name, platformSecretProblem(ref.Name))
		}
		secret, problem := runnerconfig.Credential(value)
		switch {
		case problem != "":
			return nil, &SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("its key %q %s", ref.Key, problem)}
		case secret == "":
			return nil, &SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("its key %q is empty, but the OAuth app %q needs a client secret", ref.Key, app.Name)}
		case len(secret) > runnerconfig.MaxVariable:
			return nil, invalidOAuthApp(app.Name, fmt.Sprintf("has a client secret of more than %d bytes", runnerconfig.MaxVariable))
		}
		one := runnerconfig.OAuthApp{
			Name: string(app.Name), TokenURL: app.TokenURL, ClientID: app.ClientID, ClientSecret: secret, Audience: app.Audience,
		}
		for _, scope := range app.Scopes {
			one.Scopes = append(one.Scopes, string(scope))
		}
		out = append(out, one)
	}
	return out, nil
}

// invalidOAuthApp returns an error that stalls the users of an OAuth app.
func invalidOAuthApp(name v1alpha1.OAuthAppName, problem string) error {
	return &StalledError{
		Reason:  v1alpha1.ReasonInvalidSpec,
		Message: v1alpha1.InvalidSpecMessage(fmt.Sprintf("spec.oauthApps: %q %s", name, problem)),
	}
}
