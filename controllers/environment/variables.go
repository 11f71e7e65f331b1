// SPDX-License-Identifier: Apache-2.0

package environment

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

// variablesDigest returns a digest of an environment's variables and OAuth apps: the spec and the versions
// of the Secrets that it names. It returns "" if there are none. It contains no value of a Secret, because
// the status shows it.
func (r *Reconciler) variablesDigest(ctx context.Context, e *v1alpha1.Environment) (string, error) {
	if len(e.Spec.Variables) == 0 && len(e.Spec.OAuthApps) == 0 {
		return "", nil
	}
	variables := slices.SortedFunc(slices.Values(e.Spec.Variables), func(a, b v1alpha1.EnvironmentVariable) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	versions := map[v1alpha1.Name]string{}
	for _, v := range variables {
		if v.SecretKeyRef != nil {
			versions[v.SecretKeyRef.Name] = ""
		}
	}
	apps := slices.SortedFunc(slices.Values(e.Spec.OAuthApps), func(a, b v1alpha1.OAuthApp) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	for _, a := range apps {
		versions[a.ClientSecretRef.Name] = ""
	}
	for name := range versions {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: string(name)}, secret)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the Secret %q of a variable or an OAuth app: %w", name, err)
		}
		versions[name] = secret.ResourceVersion
	}
	content := []any{variables, versions}
	if len(apps) > 0 { // so that an environment without apps keeps its digest
		content = append(content, apps)
	}
	data, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("writing the variables: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// isStopped reports whether a deployment failed because of its connectors. A change of the variables
// may fix that.
func isStopped(deployment string, all []v1alpha1.Deployment) bool {
	return slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool {
		return d.Name == deployment && d.Status.FailureReason == v1alpha1.FailureConnectors
	})
}
