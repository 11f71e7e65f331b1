// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/internal/displayname"
)

// maxCRDSize leaves room below what an annotation of `kubectl apply` may hold.
const maxCRDSize = 200_000

// schemaVisitor is called with every node of a CRD's schema. The path nests as
// .spec.modelProviders[].prefix, with "{}" for the values of a map.
type schemaVisitor func(path string, node apiextensionsv1.JSONSchemaProps)

// crds reads the generated CRDs.
func crds(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.NoError(t, err)
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict(text, crd), file)
		out = append(out, crd)
	}
	require.Len(t, out, 6)
	return out
}

func walk(crd *apiextensionsv1.CustomResourceDefinition, visit schemaVisitor) {
	walkNode("", *crd.Spec.Versions[0].Schema.OpenAPIV3Schema, visit)
}

func walkNode(path string, node apiextensionsv1.JSONSchemaProps, visit schemaVisitor) {
	visit(path, node)
	for name, property := range node.Properties {
		walkNode(path+"."+name, property, visit)
	}
	if node.Items != nil {
		walkNode(path+"[]", *node.Items.Schema, visit)
	}
	if node.AdditionalProperties != nil && node.AdditionalProperties.Schema != nil {
		walkNode(path+"{}", *node.AdditionalProperties.Schema, visit)
	}
}

// ofKubernetes says whether a node belongs to a type that Kubernetes defines.
func ofKubernetes(path string) bool {
	return slices.ContainsFunc([]string{
		".metadata", ".apiVersion", ".kind", ".status.conditions",
		".spec.runner.affinity", ".spec.runner.tolerations",
	}, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

func TestCRDs_StayBelowSizeLimit(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 6)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(maxCRDSize), file)
	}
}

func TestCRDs_DocumentAllFields(t *testing.T) {
	t.Parallel()
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			if ofKubernetes(path) || strings.HasSuffix(path, "]") || strings.HasSuffix(path, "}") {
				return
			}
			require.NotEmpty(t, node.Description, "%s %s", crd.Spec.Names.Kind, path)
		})
	}
}

// Whoever reads `kubectl explain` can write each value of an enumeration as it is.
func TestCRDs_ExplainEnumValues(t *testing.T) {
	t.Parallel()
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			if ofKubernetes(path) || !strings.HasPrefix(path, ".spec.") {
				return
			}
			words := strings.FieldsFunc(node.Description, func(r rune) bool { return !unicode.IsLetter(r) })
			for _, value := range node.Enum {
				require.Contains(t, words, strings.Trim(string(value.Raw), `"`), "%s %s: %s", crd.Spec.Names.Kind, path, node.Description)
			}
		})
	}
}

func TestCRDs_BoundAllFields(t *testing.T) {
	t.Parallel()
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			where := crd.Spec.Names.Kind + " " + path
			switch {
			case ofKubernetes(path) || strings.HasSuffix(path, "{}"):
			case node.Type == "string" && node.Format == "" && node.Enum == nil:
				require.NotNil(t, node.MaxLength, where)
			case node.Type == "array":
				require.NotNil(t, node.MaxItems, where)
				require.NotNil(t, node.XListType, where)
			case node.Type == "object" && node.AdditionalProperties != nil:
				require.NotNil(t, node.MaxProperties, where)
			case strings.HasPrefix(path, ".spec") && node.Type == "integer":
				require.NotNil(t, node.Minimum, where)
				require.NotNil(t, node.Maximum, where)
			}
		})
	}
}

// Defaults inside list items make Argo CD and server-side apply see differences
// that are none.
func TestCRDs_HaveNoDefaultsInListItems(t *testing.T) {
	t.Parallel()
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			if strings.Contains(path, "[]") {
				require.Nil(t, node.Default, "%s %s", crd.Spec.Names.Kind, path)
			}
		})
	}
}

// The conventions that a field can break without anybody noticing; see
// docs/designs/api.md.
func TestCRDs_FollowConventions(t *testing.T) {
	t.Parallel()
	word, duration := regexp.MustCompile(`^[A-Z][A-Za-z]+$`), regexp.MustCompile(`(?i)(timeout|period|interval|duration|delay)`)
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			where := crd.Spec.Names.Kind + " " + path
			if ofKubernetes(path) {
				return
			}
			name := path[strings.LastIndexByte(path, '.')+1:]
			for _, value := range node.Enum {
				require.Regexp(t, word, strings.Trim(string(value.Raw), `"`), "%s: values in CamelCase", where)
			}
			if duration.MatchString(name) {
				require.Equal(t, "integer", node.Type, where)
				require.Regexp(t, `Seconds$`, name, "%s: the unit stands in the name", where)
			}
			if node.Type == "array" && node.Items.Schema.Type == "object" {
				require.Equal(t, "map", *node.XListType, "%s: objects have a key", where)
			}
			require.NotEqual(t, "number", node.Type, "%s: no floating point", where)
		})
	}
}

// Every kind ends with the same columns. The columns before them distinguish its objects.
func TestCRDs_PrinterColumns(t *testing.T) {
	t.Parallel()
	for _, crd := range crds(t) {
		var wide, names []string
		for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if c.Priority > 0 {
				wide = append(wide, c.Name)
				continue
			}
			names = append(names, c.Name)
		}
		kind := crd.Spec.Names.Kind
		require.Equal(t, []string{"Ready", "Status", "Age"}, names[len(names)-3:], kind)
		require.Greater(t, len(names), 3, kind)
		if !slices.Contains(names, "ID") {
			require.Contains(t, wide, "ID", kind)
		}
		if kind == "Connector" {
			require.Contains(t, wide, "Delivering")
		}
	}
}

func TestCRDs_ReferencesStayInNamespace(t *testing.T) {
	t.Parallel()
	for _, crd := range crds(t) {
		walk(crd, func(path string, _ apiextensionsv1.JSONSchemaProps) {
			require.False(t, strings.HasSuffix(path, ".namespace"), "%s %s", crd.Spec.Names.Kind, path)
		})
	}
}

func TestCRDs_HaveShortNamesAndCategory(t *testing.T) {
	t.Parallel()
	short := map[string]string{
		"Project": "aproj", "Environment": "aenv", "Deployment": "adep",
		"Connector": "conn", "ConnectorLink": "clink", "APIKey": "akey",
	}
	for _, crd := range crds(t) {
		kind := crd.Spec.Names.Kind
		require.Equal(t, []string{short[kind]}, crd.Spec.Names.ShortNames, kind)
		require.Equal(t, []string{"agents"}, crd.Spec.Names.Categories, kind)
		require.NotNil(t, crd.Spec.Versions[0].Subresources.Status, kind)
		var selectable []string
		for _, field := range crd.Spec.Versions[0].SelectableFields {
			selectable = append(selectable, field.JSONPath)
		}
		require.Contains(t, selectable, ".status.id", kind)
		if kind != "Project" { // whose id nobody chooses
			require.Contains(t, selectable, ".spec.id", kind)
		}
	}
}

// place is where a rule stands and what it says.
type place struct{ kind, path, message string }

func TestCRDs_RulesHaveTests(t *testing.T) {
	t.Parallel()
	tested := map[place]bool{}
	collect(tested, "Project", projectBreaches)
	collect(tested, "Environment", environmentBreaches)
	collect(tested, "Deployment", deploymentBreaches)
	collect(tested, "Connector", connectorBreaches)
	collect(tested, "Connector", cronBreaches)
	collect(tested, "Connector", inboundBreaches)
	collect(tested, "Connector", outboundBreaches)
	collect(tested, "ConnectorLink", linkBreaches)
	collect(tested, "APIKey", apiKeyBreaches)
	for kind := range namedKinds { // TestDisplayName_FollowsOneRule breaks it of each
		tested[place{kind, ".spec.displayName", displayname.Message}] = true
	}
	for _, crd := range crds(t) {
		kind := crd.Spec.Names.Kind
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			for _, rule := range node.XValidations {
				if strings.HasPrefix(path, ".status") {
					continue // which controllers write: TestCRDs_AcceptedObjectsDecode tries them
				}
				require.NotEmpty(t, rule.Message, "%s %s: %s", kind, path, rule.Rule)
				at := place{kind, path, rule.Message}
				require.True(t, tested[at], "no test breaks the rule: %+v", at)
				delete(tested, at)
			}
		})
	}
	require.Empty(t, tested, "tests of rules that are not in the CRDs")
}

func collect[T client.Object](tested map[place]bool, kind string, breaches []breach[T]) {
	for _, b := range breaches {
		tested[place{kind, b.path, b.message}] = true
	}
}
