// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxText limits a plan's text, in bytes.
const maxText = 64 << 10

// document is a plan as text. Missing fields keep their values.
type document struct {
	Environments      *int32             `json:"environments"`
	RequestsPerMinute *int32             `json:"requestsPerMinute"`
	BacklogRuns       *int64             `json:"backlogRuns"`
	BacklogInput      *resource.Quantity `json:"backlogInput"`
	Storage           *resource.Quantity `json:"storage"`
	Build             struct {
		Resources      Resources `json:"resources"`
		TimeoutSeconds *int64    `json:"timeoutSeconds"`
	} `json:"build"`
	Runner struct {
		Resources         Resources            `json:"resources"`
		MaxResources      corev1.ResourceList  `json:"maxResources"`
		Annotations       *[]string            `json:"annotations"`
		Labels            *[]string            `json:"labels"`
		Tolerations       *[]corev1.Toleration `json:"tolerations"`
		RuntimeClassNames *[]string            `json:"runtimeClassNames"`
	} `json:"runner"`
}

// Load returns the platform's plan: Default, overridden by the file. An empty path means no file.
func Load(path string) (Plan, error) {
	if path == "" {
		return Default(), nil
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator's flag
	if err != nil {
		return Plan{}, fmt.Errorf("reading the plan: %w", err)
	}
	p, err := Parse(text, Default())
	if err != nil {
		return Plan{}, fmt.Errorf("reading the plan %s: %w", path, err)
	}
	return p, nil
}

// Parse returns base, overridden by a YAML or JSON text: numbers and quantities individually, lists
// as a whole. The error names the field.
func Parse(text []byte, base Plan) (Plan, error) {
	d, err := decodeDocument(text)
	if err != nil {
		return Plan{}, err
	}
	p := base.deepCopy()
	replace(&p.Environments, d.Environments)
	replace(&p.RequestsPerMinute, d.RequestsPerMinute)
	replace(&p.BacklogRuns, d.BacklogRuns)
	replace(&p.BacklogInput, d.BacklogInput)
	replace(&p.Storage, d.Storage)
	replace(&p.Build.TimeoutSeconds, d.Build.TimeoutSeconds)
	mergeResources(&p.Build.Requests, d.Build.Resources.Requests)
	mergeResources(&p.Build.Limits, d.Build.Resources.Limits)
	mergeResources(&p.Runner.Resources.Requests, d.Runner.Resources.Requests)
	mergeResources(&p.Runner.Resources.Limits, d.Runner.Resources.Limits)
	mergeResources(&p.Runner.MaxResources, d.Runner.MaxResources)
	replace(&p.Runner.Annotations, d.Runner.Annotations)
	replace(&p.Runner.Labels, d.Runner.Labels)
	replace(&p.Runner.Tolerations, d.Runner.Tolerations)
	replace(&p.Runner.RuntimeClassNames, d.Runner.RuntimeClassNames)
	return p, p.validate()
}

func mergeResources(into *corev1.ResourceList, from corev1.ResourceList) {
	if *into == nil {
		*into = corev1.ResourceList{}
	}
	maps.Copy(*into, from)
}

func replace[T any](into, with *T) {
	if with != nil {
		*into = *with
	}
}

// decodeDocument parses one document. Unknown and repeated fields are errors.
func decodeDocument(text []byte) (d document, err error) {
	if len(text) > maxText {
		return d, fmt.Errorf("it has %d bytes; at most %d are read", len(text), maxText)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	one, err := documents.Read()
	if errors.Is(err, io.EOF) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("it is not YAML: %w", err)
	}
	if more, err := documents.Read(); !errors.Is(err, io.EOF) && len(bytes.TrimSpace(more)) > 0 {
		return d, errors.New("it has more than one document; write one")
	}
	plain, err := yaml.YAMLToJSONStrict(one)
	if err != nil {
		return d, fmt.Errorf("it is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	fields := json.NewDecoder(bytes.NewReader(plain))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&d); err != nil {
		return d, explain(err)
	}
	return d, nil
}

// explain converts an error of encoding/json for an author of YAML.
func explain(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%s must be %s, not a %s", wrong.Field, patternKind(wrong.Type.Kind().String()), wrong.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func patternKind(kind string) string {
	switch kind {
	case "slice":
		return "a list"
	case "struct", "map":
		return "a map"
	case "string":
		return "a text"
	default:
		return "a whole number"
	}
}
