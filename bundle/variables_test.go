// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// A prompt names variables as {env.NAME}.
func TestPromptVariables_ReturnsNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"REGION", "a-b.c"}, bundle.PromptVariables("{env.REGION}, {env}, {name}, {envs.ZONE}, {env.a-b.c} {env.REGION}"))
}

// Each key whose documentation speaks of variables has the tag variables.
func TestVariableUses_KnowAllKeys(t *testing.T) {
	t.Parallel()
	tags := map[string]string{}
	for _, root := range []reflect.Type{reflect.TypeFor[bundle.Agent](), reflect.TypeFor[bundle.Connector](), reflect.TypeFor[bundle.ToolFile]()} {
		maps.Copy(tags, bundle.KeysOfVariables(root))
	}
	for _, kind := range []bundle.Kind{bundle.KindAgent, bundle.KindConnector, bundle.KindTools} {
		for _, key := range bundle.Keys(kind) {
			if strings.Contains(key.Doc, "ariable") {
				t.Run(key.Field, func(t *testing.T) { require.NotEmpty(t, tags[key.Field]) })
			}
		}
	}
}

// Agents share the values of files of defaults, so each place is one use.
func TestVariableUses_AreDistinct(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(bundle.Files{
		"agents/_defaults.yaml": []byte("system_prompt: 'In {env.REGION}, {env.REGION}'\nmodel: openai/x\n"),
		"agents/a.yaml":         []byte("name: a\n"),
		"agents/b.yaml":         []byte("name: b\n"),
		"tools/a.yaml":          []byte("base_url: ${URL}\ntools: {b: {description: d, request: POST /a, json: {a: ['$${NONE} ${ID}', 1]}}}\n"),
	})
	require.NoError(t, err)
	at := func(file string, line, column int) bundle.Position {
		return bundle.Position{File: file, Line: line, Column: column}
	}
	require.Equal(t, []bundle.VariableUse{
		{Name: "REGION", Written: "{env.REGION}", Position: at("agents/_defaults.yaml", 1, 16)},
		{Name: "URL", Written: "${URL}", Position: at("tools/a.yaml", 1, 11), AllowsSensitive: true},
		{Name: "ID", Written: "${ID}", Position: at("tools/a.yaml", 2, 58), AllowsSensitive: true},
	}, p.VariableUses())
}
