// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Manifests returns the objects of a kustomization, such as "config/default", in order. It supports
// only resources and fails for other fields; use kustomize for those.
func Manifests(tb testing.TB, path string) []*unstructured.Unstructured {
	tb.Helper()
	root, err := repository()
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return kustomization(tb, filepath.Join(root, path))
}

func kustomization(tb testing.TB, dir string) []*unstructured.Unstructured {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		tb.Fatalf("testenv: reading a kustomization: %v", err)
	}
	var file struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		tb.Fatalf("testenv: reading the kustomization of %s: %v", dir, err)
	}
	var out []*unstructured.Unstructured
	for _, resource := range file.Resources {
		path := filepath.Join(dir, resource)
		info, err := os.Stat(path)
		if err != nil {
			tb.Fatalf("testenv: reading what %s names: %v", dir, err)
		}
		if info.IsDir() {
			out = append(out, kustomization(tb, path)...)
		} else {
			out = append(out, documents(tb, path)...)
		}
	}
	return out
}

// documents returns the objects of a YAML file.
func documents(tb testing.TB, path string) []*unstructured.Unstructured {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("testenv: reading a manifest: %v", err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatalf("testenv: reading %s: %v", path, err)
		}
		if len(object.Object) > 0 { // a document may be a comment
			out = append(out, object)
		}
	}
}
