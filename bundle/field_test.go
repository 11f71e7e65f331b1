// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// tagName matches the names of the tags of a field.
var tagName = regexp.MustCompile(`(\w+):"[^"]*"`)

// A misspelled tag would have no effect.
func TestFields_HaveKnownTags(t *testing.T) {
	t.Parallel()
	known := []string{
		"yaml", "doc", "example", "types", "kinds", "required", "choice", "enum", "form", "file", "min", "max", "over", "without", "scope", "defaults", "variables",
		"unsupported", "unsupportedValues", "json", "needed", "maxLength", "maxItems",
	}
	packages := []string{reflect.TypeFor[Agent]().PkgPath(), configType.PkgPath()}
	seen := map[reflect.Type]bool{}
	var visit func(of reflect.Type)
	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || !slices.Contains(packages, of.PkgPath()) || seen[of] {
			return
		}
		seen[of] = true
		for _, goField := range reflect.VisibleFields(of) {
			for _, found := range tagName.FindAllStringSubmatch(string(goField.Tag), -1) {
				require.Contains(t, known, found[1], "%s.%s", of, goField.Name)
			}
			if goField.Tag.Get("yaml") != "" {
				visit(goField.Type)
			}
		}
	}
	visit(reflect.TypeFor[Agent]())
	visit(reflect.TypeFor[Connector]())
	visit(reflect.TypeFor[Script]())
	visit(reflect.TypeFor[Suite]())
	visit(reflect.TypeFor[ToolFile]())
	require.Greater(t, len(seen), 15)
}
