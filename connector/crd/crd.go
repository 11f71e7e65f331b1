// SPDX-License-Identifier: Apache-2.0

// Package crd converts the settings of connectors from and to the fields of Connector and ConnectorLink
// objects.
package crd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
)

// KindOf returns the kind of a connector.
func KindOf(c *v1alpha1.Connector) connector.Kind {
	return connector.KindOf(string(c.Type()), cmp.Or(c.Spec.Mode, v1alpha1.ModeInbound).EnumValue())
}

// HasSecret reports whether a connector has a secret, for callers or for signatures.
func HasSecret(c *v1alpha1.Connector) bool {
	kind := KindOf(c)
	return kind.Sends() || connector.Config{Authentication: c.Authentication().EnumValue()}.RequiresAuthentication(kind)
}

// GeneratesSecret reports whether the platform generates the secret of a connector.
func GeneratesSecret(c *v1alpha1.Connector) bool {
	return HasSecret(c) && c.Spec.SecretRef == nil && c.SealedSecret() == ""
}

// ConfigOf returns the settings of a connector, without sealed values.
func ConfigOf(c *v1alpha1.Connector) (out connector.Config) {
	kind, settings := KindOf(c), fieldNamed(reflect.ValueOf(&c.Spec).Elem(), string(c.Type()))
	if settings.IsNil() {
		return out
	}
	for _, f := range specFields(kind) {
		from, to := fieldNamed(settings.Elem(), FieldName(f.Name)), f.In(&out)
		switch {
		case f.Enum != nil:
			to.SetString(enumValue(f.Enum, from.String()))
		default:
			copyValue(to, from)
		}
	}
	if kind.HasCallers() {
		out.Authentication = c.Authentication().EnumValue()
		out.RequireAuthentication = ptr.To(out.RequiresAuthentication(kind))
	}
	return out
}

// specFields returns the settings of a kind that the spec has. It says None in authentication for require_authentication.
func specFields(kind connector.Kind) []connector.Field {
	return slices.DeleteFunc(slices.Clone(kind.Fields()), func(f connector.Field) bool { return f.Name == "require_authentication" })
}

// SetConfig writes the settings of a kind into the spec of a connector. Texts and enums get the defaults of kube-apiserver.
func SetConfig(spec *v1alpha1.ConnectorSpec, kind connector.Kind, config connector.Config) {
	full, settings := config.WithDefaults(kind), fieldNamed(reflect.ValueOf(spec).Elem(), kind.Type())
	settings.Set(reflect.New(settings.Type().Elem()))
	for _, f := range specFields(kind) {
		to := fieldNamed(settings.Elem(), FieldName(f.Name))
		switch {
		case f.Enum != nil:
			to.SetString(EnumName(f.In(&full).String()))
		case f.Type.Kind() == reflect.String:
			to.SetString(f.In(&full).String())
		default:
			copyValue(to, f.In(&config))
		}
	}
	if spec.Webhook != nil && !kind.HasCallers() {
		spec.Webhook.Authentication = v1alpha1.AuthenticationSecret
	}
}

// fieldNamed returns the field of a struct with the given name in the spec. It panics without one: each setting has a field.
func fieldNamed(of reflect.Value, name string) reflect.Value {
	for i := range of.NumField() {
		if FieldName(jsonName(of.Type().Field(i))) == name {
			return of.Field(i)
		}
	}
	panic("crd: " + of.Type().Name() + " has no field " + name)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// copyValue copies a value between a setting and a field of a spec. Their types differ in pointers, in the names of fields and in
// the size of numbers, which the settings' tags keep within 32 bits. An empty value leaves the target empty.
func copyValue(to, from reflect.Value) {
	switch value := from.Interface().(type) {
	case *runtime.RawExtension:
		if value != nil {
			to.SetBytes(CanonicalJSON(value.Raw))
		}
		return
	case json.RawMessage:
		if text := string(value); text != "" && text != "{}" && text != "null" {
			to.Set(reflect.ValueOf(&runtime.RawExtension{Raw: bytes.Clone(value)}))
		}
		return
	case map[string]string:
		to.Set(reflect.ValueOf(maps.Clone(value)))
		return
	}
	switch kind := from.Kind(); {
	case from.IsZero(), kind == reflect.Slice && from.Len() == 0:
	case to.Kind() == reflect.Pointer:
		value := reflect.New(to.Type().Elem())
		copyValue(value.Elem(), reflect.Indirect(from))
		to.Set(value)
	case kind == reflect.Pointer:
		copyValue(to, from.Elem())
	case kind == reflect.Struct:
		for i := range to.NumField() {
			copyValue(to.Field(i), fieldNamed(from, FieldName(jsonName(to.Type().Field(i)))))
		}
	case kind == reflect.Slice:
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyValue(to.Index(i), from.Index(i))
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}

// OutboundLink returns the fields of a link with these settings, whose source connectors are names of objects.
func OutboundLink(policy connector.Policy) *v1alpha1.OutboundLink {
	out := &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAutomatic, ActionName: v1alpha1.ActionName(policy.ActionName)}
	if policy.Mode != "" {
		out.Mode = v1alpha1.LinkModeOf(policy.Mode)
	}
	for _, name := range policy.SourceConnectors {
		out.SourceConnectors = append(out.SourceConnectors, v1alpha1.ConnectorName(name))
	}
	for _, status := range policy.Statuses {
		out.Statuses = append(out.Statuses, v1alpha1.LinkStatusOf(status))
	}
	return out
}

// spellings are the words whose capital letters do not follow from their form with underscores.
var spellings = map[string]string{"timezone": "timeZone", "github": "GitHub", "gitlab": "GitLab"}

// FieldName returns the name of a setting in the spec of a connector.
func FieldName(setting string) string {
	if spelled := spellings[setting]; spelled != "" {
		return spelled
	}
	words := strings.Split(setting, "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// EnumName returns the form of an enum value in the spec of a connector.
func EnumName(value string) string {
	name := FieldName(value)
	return strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):]
}

// enumValue returns the enum value with a form in the spec of a connector. A value of another release stays as it is, so that the
// check of the kind rejects it.
func enumValue(enum []string, name string) string {
	for _, value := range enum {
		if EnumName(value) == name {
			return value
		}
	}
	return name
}

// CanonicalJSON returns a JSON document with sorted keys, without spaces and without escapes that only HTML needs, because
// kube-apiserver does not keep the format of documents.
func CanonicalJSON(document []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return document
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) != nil {
		return document
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}
