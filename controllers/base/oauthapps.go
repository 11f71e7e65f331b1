// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"net/url"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

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
