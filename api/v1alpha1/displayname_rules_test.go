// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/displayname"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// namedKinds are the kinds with a displayName.
var namedKinds = map[string]func() client.Object{
	"Project":     func() client.Object { return newProject() },
	"Environment": func() client.Object { return newEnvironment() },
	"Connector":   func() client.Object { return newConnector() },
	"APIKey":      func() client.Object { return newAPIKey() },
}

// Every kind with a displayName takes the names that the REST API and repositories take.
func TestDisplayName_FollowsOneRule(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	names := []string{"a", "Ünïcode 日本", "a  b", "a/b?c=d", "<b>", strings.Repeat("ä", displayname.MaxLength)}
	for _, r := range "\x00\n\u0085\u00a0\u061c\u200b\u200e\u2028\u202e\u2066\u3000\u3164\ufe0f\ufeff" {
		names = append(names, string(r), string(r)+"a", "a"+string(r), "a"+string(r)+"b")
	}
	for kind, base := range namedKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, name := range names {
				fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(base())
				require.NoError(t, err)
				object := &unstructured.Unstructured{Object: fields}
				object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
				object.SetNamespace(metav1.NamespaceDefault)
				require.NoError(t, unstructured.SetNestedField(fields, name, "spec", "displayName"))
				delete(fields, "status")
				err = control.Client.Create(t.Context(), object, client.DryRunAll)
				if displayname.Problem(name) == "" {
					require.NoError(t, err, "%+q", name)
					continue
				}
				require.True(t, apierrors.IsInvalid(err), "%+q: %v", name, err)
				require.ErrorContains(t, err, displayname.Message, "%+q", name)
			}
		})
	}
}
