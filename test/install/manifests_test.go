// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// installations are the kustomizations that can be installed.
var installations = []string{"config/default", "config/embedded"}

// build returns the objects that kustomize builds from a user's kustomization on top of a folder of this repository.
func build(t *testing.T, path, kustomization string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	base, err := filepath.Rel(dir, filepath.Join(root, path))
	require.NoError(t, err)
	text := "resources: [" + base + "]\n" + kustomization
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	var out []*unstructured.Unstructured
	for _, resource := range made.Resources() {
		object, err := resource.Map()
		require.NoError(t, err)
		out = append(out, &unstructured.Unstructured{Object: object})
	}
	require.NotEmpty(t, out)
	return out
}

// of returns the objects of a kind, decoded to the kind's Go type.
func of[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) (out []T) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind {
			var into T
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &into, true), "%s %s", kind, o.GetName())
			out = append(out, into)
		}
	}
	return out
}

// workload is a workload whose pods belong to the platform.
type workload struct {
	name     string
	replicas int32
	template corev1.PodTemplateSpec
}

func workloads(t *testing.T, objects []*unstructured.Unstructured) (out []workload) {
	t.Helper()
	for _, d := range of[appsv1.Deployment](t, objects, "Deployment") {
		out = append(out, workload{d.Name, *d.Spec.Replicas, d.Spec.Template})
	}
	for _, s := range of[appsv1.StatefulSet](t, objects, "StatefulSet") {
		out = append(out, workload{s.Name, *s.Spec.Replicas, s.Spec.Template})
	}
	require.NotEmpty(t, out)
	return out
}

// texts collects all strings in an object by their path.
func texts(value any, path string, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			texts(inner, path+"."+key, into)
		}
	case []any:
		for _, inner := range v {
			texts(inner, path+"[]", into)
		}
	case string:
		into[path] += v + "\n"
	}
}

// `images:` of a kustomization replaces every image, including the image of build and runner pods, which use the manager's
// image.
func TestImages_AreFoundByKustomize(t *testing.T) {
	t.Parallel()
	const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, installation := range installations {
		objects := build(t, installation, "images:\n- {name: agentplatform, newName: registry.example.com/platform, digest: '"+digest+"'}\n")
		for _, w := range workloads(t, objects) {
			require.Empty(t, w.template.Spec.InitContainers)
			for _, c := range w.template.Spec.Containers {
				require.Equal(t, "registry.example.com/platform@"+digest, c.Image, w.name)
			}
		}
		for _, o := range objects {
			found := map[string]string{}
			texts(o.Object, "", found)
			for path, text := range found {
				require.NotContains(t, text, "agentplatform:", "%s %s%s", o.GetKind(), o.GetName(), path)
				require.False(t, strings.Contains(text, "--image"), "%s %s%s names an image", o.GetKind(), o.GetName(), path)
			}
		}
	}
}

// The manager knows its container's name from a flag and its pod's name from the downward API.
func TestManager_KnowsItsContainer(t *testing.T) {
	t.Parallel()
	managers := 0
	for _, installation := range installations {
		for _, w := range workloads(t, build(t, installation, "")) {
			for _, c := range w.template.Spec.Containers {
				if len(c.Args) == 0 || c.Args[0] != "manager" && c.Args[0] != "all" {
					continue
				}
				managers++
				require.Contains(t, c.Args, "--container-name="+c.Name, w.name)
				require.Contains(t, c.Env, corev1.EnvVar{Name: "AGENTPLATFORM_POD_NAME", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
				}}, w.name)
			}
		}
	}
	require.Equal(t, 2, managers)
}
