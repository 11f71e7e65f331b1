// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// variablesDigest returns a digest of an environment's variables: the spec and the versions of the
// Secrets that it names. It returns "" if there are none. It contains no value of a Secret, because the
// status shows it.
func (f *Follower) variablesDigest(ctx context.Context, e *v1alpha1.Environment) (string, error) {
	if len(e.Spec.Variables) == 0 {
		return "", nil
	}
	variables := slices.SortedFunc(slices.Values(e.Spec.Variables), func(a, b v1alpha1.EnvironmentVariable) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	var secrets []v1alpha1.Name
	for _, v := range variables {
		if v.SecretKeyRef != nil {
			secrets = append(secrets, v.SecretKeyRef.Name)
		}
	}
	return f.digestWithSecrets(ctx, e, variables, secrets)
}

// oauthAppsDigest returns a digest of an environment's OAuth apps, as variablesDigest does of variables.
func (f *Follower) oauthAppsDigest(ctx context.Context, e *v1alpha1.Environment) (string, error) {
	if len(e.Spec.OAuthApps) == 0 {
		return "", nil
	}
	apps := slices.SortedFunc(slices.Values(e.Spec.OAuthApps), func(a, b v1alpha1.OAuthApp) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	var secrets []v1alpha1.Name
	for _, a := range apps {
		secrets = append(secrets, a.ClientSecretRef.Name)
	}
	return f.digestWithSecrets(ctx, e, apps, secrets)
}

// digestWithSecrets returns a digest of a part of the spec and of the versions of Secrets.
func (f *Follower) digestWithSecrets(ctx context.Context, e *v1alpha1.Environment, spec any, secrets []v1alpha1.Name) (string, error) {
	versions := map[v1alpha1.Name]string{}
	for _, name := range secrets {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := f.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: string(name)}, secret)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the Secret %q of a variable or an OAuth app: %w", name, err)
		}
		versions[name] = secret.ResourceVersion
	}
	return digestOf([]any{spec, versions})
}

// modelProvidersDigest returns a digest of the prefixes of a project's model providers, or "" if there are none.
// A deployment needs no other field of them.
func modelProvidersDigest(project *v1alpha1.Project) (string, error) {
	if len(project.Spec.ModelProviders) == 0 {
		return "", nil
	}
	var prefixes []string
	for _, p := range project.Spec.ModelProviders {
		prefixes = append(prefixes, p.Prefix)
	}
	slices.Sort(prefixes)
	return digestOf(prefixes)
}

// digestOf returns a digest of a value in hexadecimal digits.
func digestOf(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("writing a part of the spec: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// hasFailed reports whether a deployment or its last activation failed for a reason. Failures and results of
// activations have the same names.
func hasFailed(deployment string, reason v1alpha1.DeploymentFailure, all []v1alpha1.Deployment) bool {
	return slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool {
		a := d.Status.Activation
		return d.Name == deployment && (d.Status.FailureReason == reason ||
			a != nil && string(a.Result) == string(reason) && !d.Status.Live && !d.ActivationPending())
	})
}
