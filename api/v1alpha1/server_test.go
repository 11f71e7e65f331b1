// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// samples are the objects of config/samples, in the order of its kustomization.
func samples(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	const dir = "../../config/samples"
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	require.NoError(t, err)
	var kustomization struct{ Resources []string }
	require.NoError(t, yaml.Unmarshal(text, &kustomization))
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, kustomization.Resources, len(files)-1, "every file but the kustomization is listed")

	var out []*unstructured.Unstructured
	for _, file := range kustomization.Resources {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		out = append(out, objects(t, text)...)
	}
	return out
}

// objects reads YAML documents.
func objects(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, object)
	}
}

func TestSamples_ApplyWithoutDifference(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	namespace := control.Namespace(t)
	strict := client.WithFieldValidation(control.Client, "Strict")
	kinds := map[string]bool{}
	for _, sample := range samples(t) {
		kinds[sample.GetKind()] = true
		sample.SetNamespace(namespace)
		// The first write after the creation stores the status's default.
		var versions []string
		for range 3 {
			applied := sample.DeepCopy()
			require.NoError(t, strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("test")),
				"%s %s", sample.GetKind(), sample.GetName())
			versions = append(versions, applied.GetResourceVersion())
			require.LessOrEqual(t, applied.GetGeneration(), int64(1), "%s %s", sample.GetKind(), sample.GetName())
		}
		require.Equal(t, versions[1], versions[2], "%s %s", sample.GetKind(), sample.GetName())
	}
	for _, o := range all() {
		require.True(t, kinds[o.ObjectKind()], "a sample of %s", o.ObjectKind())
	}
}

func TestPages_ExamplesApply(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	strict := client.WithFieldValidation(control.Client, "Strict")
	namespace := control.Namespace(t)
	for _, o := range all() {
		page := strings.ToLower(o.ObjectKind()) + ".md"
		text, err := os.ReadFile(filepath.Join("../../docs/spec", page))
		require.NoError(t, err)
		_, rest, found := bytes.Cut(text, []byte("```yaml\n"))
		require.True(t, found, page)
		example, _, _ := bytes.Cut(rest, []byte("```"))
		for _, object := range objects(t, example) {
			object.SetNamespace(namespace)
			require.Equal(t, o.ObjectKind(), object.GetKind(), page)
			require.NoError(t, strict.Create(t.Context(), object), page)
		}
	}
}

func TestCRDs_SelectableFields(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	namespace := control.Namespace(t)
	connector := newConnector()
	connector.Namespace = namespace
	connector.Spec.ID = someID
	require.NoError(t, control.Client.Create(t.Context(), connector))
	connector.Status.ID = string(someID)
	v1alpha1.MarkReady(connector, "")
	require.NoError(t, control.Client.Status().Update(t.Context(), connector))

	for _, c := range []struct {
		field, value string
		want         int
	}{
		{".spec.id", string(someID), 1}, {".status.id", string(someID), 1}, {".status.id", string(anotherID), 0},
		{".spec.environment", "production", 1}, {".spec.mode", "Inbound", 1}, {".spec.mode", "Sync", 0},
	} {
		t.Run(c.field+"="+c.value, func(t *testing.T) {
			list := &v1alpha1.ConnectorList{}
			require.NoError(t, control.Client.List(t.Context(), list,
				client.InNamespace(namespace), client.MatchingFields{c.field[1:]: c.value}), c.field)
			require.Len(t, list.Items, c.want, "%s=%s", c.field, c.value)
		})
	}
}

func TestEnvironment_ScaleSubresource(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	environment := newEnvironment()
	environment.Namespace = control.Namespace(t)
	require.NoError(t, control.Client.Create(t.Context(), environment))
	require.EqualValues(t, 1, *environment.Spec.Runner.MinReplicas, "the default")

	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	require.NoError(t, control.Client.SubResource("scale").Update(t.Context(), environment, client.WithSubResourceBody(scale)))
	require.NoError(t, control.Client.Get(t.Context(), client.ObjectKeyFromObject(environment), environment))
	require.EqualValues(t, 3, environment.Spec.Runner.Replicas())
}

// The API server takes what the marks of all kinds write.
func TestStatus_AcceptedByAPIServer(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	namespace := control.Namespace(t)
	for _, o := range all() {
		object := o.(client.Object)
		object.SetNamespace(namespace)
		object.SetGeneration(0)
		require.NoError(t, control.Client.Create(t.Context(), object))
		require.EqualValues(t, -1, o.CommonStatus().ObservedGeneration, "kstatus waits for a controller")
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, "at work")
		require.NoError(t, control.Client.Status().Update(t.Context(), object))
		v1alpha1.MarkReady(o, "")
		require.NoError(t, control.Client.Status().Update(t.Context(), object))
		require.True(t, v1alpha1.IsReady(o), o.ObjectKind())
	}
}

func TestDeploymentStatus_AcceptedByAPIServer(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	d := newDeployment()
	d.Namespace = control.Namespace(t)
	d.Spec.Activation = activation(12)
	require.NoError(t, control.Client.Create(t.Context(), d))
	d.Status.Bundle = &v1alpha1.DeploymentBundle{Digest: "sha256:00", Size: 1}
	d.Status.Agents = []v1alpha1.DeploymentAgent{{Name: "greeter", Type: "llm"}}
	d.MarkDeployed()
	d.MarkLive(d.CreationTimestamp, 1)
	d.MarkActivation(v1alpha1.ActivationActivated, "live")
	require.NoError(t, control.Client.Status().Update(t.Context(), d))
	require.False(t, d.ActivationPending())

	failed := newDeployment()
	failed.Name, failed.Namespace = "production-2", d.Namespace
	require.NoError(t, control.Client.Create(t.Context(), failed))
	failed.MarkBuilding(v1alpha1.StepPacking)
	failed.MarkFailed(v1alpha1.FailureBuild, "agents/greeter.yaml:3:1: unknown key")
	require.NoError(t, control.Client.Status().Update(t.Context(), failed))
}
