// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// raw is JSON as it is sent.
type raw = json.RawMessage

// anything are values that fit few fields.
var anything = []string{`null`, `""`, `"a"`, `{}`, `[]`, `[null]`, `{"a":null}`, `true`, `0`, `1.5`}

// nasty are values by the type of the field, at and beyond what Go decodes.
var nasty = map[string][]string{
	"boolean": {`false`, `"true"`, `1`},
	"integer": {
		`1`, `-1`, `2`, `1e0`, `1e3`, `1.0`, `1000`, `2147483647`, `2147483648`, `-2147483648`, `-2147483649`, `9007199254740991`,
		`9007199254740992`, `9223372036854775807`, `9223372036854775808`, `10000000000000000000`, `1e30`, `-1e30`, `1e-7`, `"1"`,
	},
	"string": {
		`"1"`, `"a1"`, `"AB_1"`, `"a/b"`, `"a.b"`, `"A_b-1"`, `"ä"`, `" "`, `"\u0000"`, `"\ud800"`, `"null"`, `"` + strings.Repeat("x", 5000) + `"`,
		`"7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10"`, `"7B0C7A52-6C1F-4C3E-9A55-0F6D1F1F8F10"`, `"7b0c7a526c1f4c3e9a550f6d1f1f8f10"`,
		`"{7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10}"`, `"urn:uuid:7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10"`, `"28623ccb-65eb-53ce-9b18-80e9c90551e7"`,
		`"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"`, `"` + strings.Repeat("0a", 32) + `"`, `"sha256:` + strings.Repeat("0a", 32) + `"`,
		`"https://example.com/a"`, `"Ab3dEf7h"`, `"environments.view"`, `"@hourly"`,
		`"1h"`, `"-1h"`, `"1.5h"`, `"9999999999h"`, `"1d"`, `".5s"`, `"1us"`,
		`"2030-01-31T12:00:00Z"`, `"2030-01-31t12:00:00z"`, `"2030-01-31T12:00:00+99:99"`, `"2030-01-31T12:00:00+02:00"`, `"2030-01-31T12:00:00"`,
		`"2030-01-31T12:00:00.5Z"`, `"2030-01-31T12:00:00,5Z"`, `"2030-01-31T12:00:00x5Z"`, `"2016-12-31T23:59:60Z"`, `"2030-02-30T12:00:00Z"`,
		`"2030-01-31T24:00:00Z"`, `"0000-01-01T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `"2030-01-31T12:00:00Zt12:00:00z"`, `"2030-01-31"`, `"2030-01-31 12:00:00Z"`,
	},
	"quantity": {
		`"500m"`, `"2"`, `"1Gi"`, `"1e9.5"`, `"1e9"`, `"1e-9999"`, `"1E"`, `"1e99"`, `".5"`, `"5."`, `"+1"`, `"-1"`, `"1ki"`, `"1 Gi"`, `" 1"`, `"1_000"`,
		`"0.000000000001"`, `"99999999999999999999E"`, `1`, `-1`, `1e3`, `9223372036854775808`,
	},
}

// kindOf is the key of nasty for a field, "" for one that holds others.
func kindOf(node apiextensionsv1.JSONSchemaProps) string {
	switch {
	case node.XIntOrString:
		return "quantity"
	case node.Type == "object" || node.Type == "array":
		return ""
	}
	return node.Type
}

// manifests are objects of each kind; together they may have every field.
func manifests() map[string][]v1alpha1.ConditionedObject {
	sync, selected := newConnector(), newAPIKey()
	sync.Spec.Mode = v1alpha1.ModeSync
	selected.Spec.Access, selected.Spec.EnvironmentAccess = v1alpha1.AccessSelected, v1alpha1.AccessSelected
	grouped := newAPIKey()
	grouped.Spec.Owner = v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna", Groups: []string{"developers"}}
	uploaded := newDeployment()
	uploaded.Spec.Source = v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: someDigest}}
	authorized := newEnvironment()
	authorized.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.Scopes, a.Audience = []v1alpha1.OAuthScope{"crm.read"}, "crm" })
	following := newEnvironment()
	following.Spec.Git.AutoDeploy = true
	return map[string][]v1alpha1.ConditionedObject{
		"Project": {newProject()}, "Environment": {newEnvironment(), following, authorized, withVariable(v1alpha1.EnvironmentVariable{Value: ptr.To("eu")}), withVariable(v1alpha1.EnvironmentVariable{SealedValue: "AQ=="}),
			withVariable(v1alpha1.EnvironmentVariable{SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}})}, "Deployment": {newDeployment(), uploaded},
		"Connector": {newConnector(), sync, newCronConnector(), newOutboundConnector()}, "ConnectorLink": {newLink(), newOutboundLink(), newToolLink()}, "APIKey": {newAPIKey(), selected, grouped},
	}
}

// What the API server takes, the informers must be able to read: they list a
// kind as a whole, so that one object would stop the controller of all tenants.
// The fields come from the CRDs, so that a new one is tried as well.
func TestCRDs_AcceptedObjectsDecode(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	config := rest.CopyConfig(control.Config)
	config.QPS = -1
	web, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	for _, crd := range crds(t) {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			t.Parallel()
			p := &prober{t: t, crd: crd, web: web, host: strings.TrimRight(config.Host, "/"), scheme: control.Scheme, taken: map[string]bool{}, read: map[typedValue]bool{}}
			tried := map[string]bool{}
			for _, object := range manifests()[crd.Spec.Names.Kind] {
				p.base(control, object)
				root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
				goType := reflect.TypeOf(object)
				for _, part := range []string{"spec", "status"} {
					// A status is judged by itself: with another spec it is taken and refused all the same.
					if there := part + string(p.object[part]); !tried[there] {
						tried[there] = true
						p.try("."+part, root.Properties[part], fieldType(goType, part), func(value raw) raw { return value }, p.object[part])
					}
				}
			}
			for path, taken := range p.taken {
				require.True(t, taken, "%s: no value was taken; give manifests() an object that can have the field", path)
			}
		})
	}
}

// prober sends values of one kind.
type prober struct {
	t      *testing.T
	crd    *apiextensionsv1.CustomResourceDefinition
	web    *http.Client
	host   string
	scheme *runtime.Scheme
	// object is the object that is changed, as the API server has it.
	object map[string]raw
	name   string
	// url is the object's, empty that of the objects of a namespace without any.
	url, empty string
	// taken says for each field whether the API server ever took a value, read for each Go type and
	// value whether Go read it.
	taken map[string]bool
	read  map[typedValue]bool
}

// typedValue is a value that is decoded into a Go type.
type typedValue struct {
	goType reflect.Type
	value  string
}

// base creates the object that the values are tried in.
func (p *prober) base(control *kube.ControlPlane, object v1alpha1.ConditionedObject) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(p.t, err)
	content["apiVersion"], content["kind"] = v1alpha1.GroupVersion.String(), object.ObjectKind()
	text, err := json.Marshal(content)
	require.NoError(p.t, err)
	objects := func() string {
		return fmt.Sprintf("%s/apis/%s/namespaces/%s/%s", p.host, v1alpha1.GroupVersion, control.Namespace(p.t), p.crd.Spec.Names.Plural)
	}
	p.name, p.url, p.empty = object.GetName(), objects(), objects()
	created, answer := p.send(http.MethodPost, p.url, text)
	require.True(p.t, created, string(answer))
	p.object = map[string]raw{}
	require.NoError(p.t, json.Unmarshal(answer, &p.object))
	p.url += "/" + p.name
}

// try puts values into a field of that Go type and into all fields below it. wrap builds spec or
// status around a value of the field; there is the field's value in the object.
func (p *prober) try(path string, node apiextensionsv1.JSONSchemaProps, goType reflect.Type, wrap func(raw) raw, there raw) {
	kind := kindOf(node)
	if _, known := p.taken[path]; !known && kind != "" {
		p.taken[path] = false
	}
	values := slices.Concat(anything, nasty[kind])
	for _, allowed := range node.Enum {
		values = append(values, string(allowed.Raw))
	}
	for _, value := range values {
		// Go reads a value by the type of the field alone, so a value that it read once need not be tried
		// in the other fields of that type. Each field takes at least one value all the same.
		at := typedValue{goType, value}
		if p.read[at] && (p.taken[path] || kind == "") {
			continue
		}
		if p.put(path, value, wrap(raw(value))) {
			p.read[at] = true
			if value != `null` {
				p.taken[path] = true
			}
		}
	}
	if node.Items != nil {
		var items []raw
		_ = json.Unmarshal(there, &items) // nothing may be there
		p.try(path+"[]", *node.Items.Schema, withoutPointers(goType.Elem()), func(value raw) raw { return wrap(raw("[" + string(value) + "]")) }, append(items, nil)[0])
	}
	if node.Type != "object" {
		return
	}
	within := p.fill(node, there)
	in := func(name string) func(raw) raw {
		return func(value raw) raw {
			object := maps.Clone(within)
			object[name] = value
			return wrap(p.text(object))
		}
	}
	for name, property := range node.Properties {
		p.try(path+"."+name, property, fieldType(goType, name), in(name), within[name])
	}
	if node.AdditionalProperties != nil && node.AdditionalProperties.Schema != nil {
		for _, name := range []string{"a", "example.com/a"} {
			p.try(path+"{}", *node.AdditionalProperties.Schema, fieldType(goType, name), in(name), nil)
		}
	}
}

// fieldType returns the type of the field that JSON calls name, without pointers: of a struct's
// field, also one of an embedded struct, or of a map's values.
func fieldType(of reflect.Type, name string) reflect.Type {
	of = withoutPointers(of)
	if of.Kind() == reflect.Map {
		return withoutPointers(of.Elem())
	}
	for _, field := range reflect.VisibleFields(of) {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return withoutPointers(field.Type)
		}
	}
	panic(fmt.Sprintf("%s has no field %q", of, name))
}

func withoutPointers(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// put says whether the API server takes an object with that spec or status, and
// fails where it does and Go cannot read it.
func (p *prober) put(path, value string, content raw) bool {
	part, url := "spec", p.url+"?dryRun=All"
	if strings.HasPrefix(path, ".status") {
		part, url = "status", p.url+"/status?dryRun=All"
	}
	object, method := maps.Clone(p.object), http.MethodPut
	object[part] = content
	if part == "spec" { // an immutable field can have any value at creation
		method, url = http.MethodPost, p.empty+"?dryRun=All"
		object["metadata"] = raw(fmt.Sprintf(`{"name":%q}`, p.name))
		delete(object, "status")
	}
	taken, answer := p.send(method, url, p.text(object))
	if !taken {
		return false
	}
	list := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"items":[%s]}`, v1alpha1.GroupVersion, p.crd.Spec.Names.ListKind, answer)
	_, _, err := serializer.NewCodecFactory(p.scheme).UniversalDeserializer().Decode([]byte(list), nil, nil)
	require.NoError(p.t, err, "%s %s = %.100s is taken by Kubernetes", p.crd.Spec.Names.Kind, path, value)
	return true
}

// text is an object as it is sent.
func (p *prober) text(object map[string]raw) raw {
	out, err := json.Marshal(object)
	require.NoError(p.t, err)
	return out
}

// fill returns the content of an object with the required fields of the schema.
func (p *prober) fill(node apiextensionsv1.JSONSchemaProps, there raw) map[string]raw {
	out := map[string]raw{}
	if len(there) > 0 {
		require.NoError(p.t, json.Unmarshal(there, &out))
		return out
	}
	for _, name := range node.Required {
		out[name] = p.example(node.Properties[name])
	}
	return out
}

// example is a value that most fields of a type take.
func (p *prober) example(node apiextensionsv1.JSONSchemaProps) raw {
	switch {
	case len(node.Enum) > 0:
		return node.Enum[0].Raw
	case node.Type == "object":
		return p.text(p.fill(node, nil))
	case node.Type == "array":
		return raw(`[]`)
	case node.Type == "integer":
		return raw(`1`)
	case node.Type == "boolean":
		return raw(`false`)
	case slices.ContainsFunc(node.XValidations, func(rule apiextensionsv1.ValidationRule) bool { return rule.Message == timeMessage }):
		return raw(`"2030-01-31T12:00:00Z"`)
	}
	return raw(`"a"`)
}

// send says whether the API server answers 2xx.
func (p *prober) send(method, url string, body raw) (bool, raw) {
	request, err := http.NewRequestWithContext(p.t.Context(), method, url, bytes.NewReader(body))
	require.NoError(p.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := p.web.Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	require.Less(p.t, response.StatusCode, http.StatusInternalServerError, "%s: %s", url, answer)
	return response.StatusCode < http.StatusMultipleChoices, answer
}
