// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// compileSchemas returns the compiled schemas of all kinds.
func compileSchemas(t *testing.T) map[bundle.Kind]*jsonschema.Schema {
	t.Helper()
	out := map[bundle.Kind]*jsonschema.Schema{}
	for _, k := range bundle.Kinds {
		text, err := bundle.FullSchema(k.Kind)
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		compiler.DefaultDraft(jsonschema.Draft2020)
		require.NoError(t, compiler.AddResource("schema.json", value))
		out[k.Kind], err = compiler.Compile("schema.json")
		require.NoError(t, err)
	}
	return out
}

// validateFile returns the error of a file's schema for a text. readable is false if the text is not YAML.
func validateFile(t *testing.T, all map[bundle.Kind]*jsonschema.Schema, file string, text []byte) (err error, readable bool) {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, false
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	return all[bundle.KindOf(file)].Validate(value), true
}

// structural matches the problems that a schema must find too: keys, types, bounds and enums.
var structural = regexp.MustCompile(`unknown key|missing key "[^"]*"; |" must be (text|true or false|a whole number|a number|a list|keys and values|` +
	`between|at least \d|at most|more than|one of|provider/model)|must have at most \d+ (items|characters)|must hold|is not for .* connectors|defaults cannot have`)

// namesType reports whether an agent has a type in its own file. Otherwise it may have one from a file of defaults.
func namesType(text []byte) bool {
	var agent struct{ Type any }
	return yaml.Unmarshal(text, &agent) == nil && agent.Type != nil
}

// requireAgreement checks that schemas and parser agree on these files, or on all: a schema accepts each file that the parser accepts,
// and rejects each file that the parser rejects for its structure.
func requireAgreement(t *testing.T, all map[bundle.Kind]*jsonschema.Schema, repository bundle.Files, about string, files ...string) {
	t.Helper()
	_, problems := bundle.Examine(repository)
	if files == nil {
		files = repository.Paths()
	}
	for _, file := range files {
		text := repository[file]
		if bundle.KindOf(file) == "" {
			continue
		}
		refused, readable := validateFile(t, all, file, text)
		if !readable {
			continue
		}
		var own bundle.Problems
		needed := false
		for _, p := range problems {
			if p.File == file {
				own = append(own, p)
				needed = needed || structural.MatchString(p.Message) || strings.Contains(p.Message, "is for type") && namesType(text)
			}
		}
		if refused != nil {
			assert.NotEmpty(t, own, "%s: the schema refuses what a build takes: %s\n%s\n%v", about, file, text, refused)
		}
		if needed {
			assert.Error(t, refused, "%s: the schema takes what a build refuses: %s\n%s\n%v", about, file, text, own)
		}
	}
}

func TestSchema_AcceptsValidFiles(t *testing.T) {
	t.Parallel()
	all := compileSchemas(t)
	_, err := bundle.Parse(everyKey())
	require.NoError(t, err)
	requireAgreement(t, all, everyKey(), "every key")
	examples := os.DirFS("../examples")
	entries, err := fs.ReadDir(examples, ".")
	require.NoError(t, err)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		root, err := fs.Sub(examples, entry.Name())
		require.NoError(t, err)
		repository, err := bundle.ReadFiles(root)
		require.NoError(t, err)
		requireAgreement(t, all, repository, entry.Name())
	}
}

func TestSchema_RejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	all := compileSchemas(t)
	for name, tt := range problemCases {
		t.Run(name, func(t *testing.T) {
			requireAgreement(t, all, tt.files, name)
		})
	}
}

// Schemas and parser agree on each key with each kind of wrong value.
func TestSchema_AgreesWithParser(t *testing.T) {
	t.Parallel()
	all, tried := compileSchemas(t), 0
	for file, text := range everyKey() {
		if bundle.KindOf(file) == "" {
			continue
		}
		data, err := yaml.YAMLToJSON(text)
		require.NoError(t, err)
		var document any
		require.NoError(t, json.Unmarshal(data, &document))
		mutateValues(document, func(about string) {
			changed, err := json.Marshal(document)
			require.NoError(t, err)
			repository := everyKey()
			repository[file] = changed
			requireAgreement(t, all, repository, file+" "+about, file)
			tried++
		})
	}
	require.Greater(t, tried, 500)
}

// Schemas and parser limit the length of texts and lists in the settings of connectors.
func TestSchema_LimitsConnectorSettings(t *testing.T) {
	t.Parallel()
	all := compileSchemas(t)
	const outbound, cron = "type: webhook\nmode: outbound\nconfig: {url: 'https://a/%s'}\n", "type: cron\nconfig: {schedule: '@daily', prompt: '%s'}\n"
	for name, c := range map[string]struct {
		text     string
		isWithin bool
	}{
		"longest URL":      {fmt.Sprintf(outbound, strings.Repeat("a", 2048-len("https://a/"))), true},
		"URL too long":     {fmt.Sprintf(outbound, strings.Repeat("a", 2048)), false},
		"longest prompt":   {fmt.Sprintf(cron, strings.Repeat("é", 16<<10)), true},
		"prompt too long":  {fmt.Sprintf(cron, strings.Repeat("é", 16<<10+1)), false},
		"most headers":     {"type: webhook\nmode: sync\nconfig: {context_headers: [a" + strings.Repeat(", a", 15) + "]}\n", true},
		"too many headers": {"type: webhook\nmode: sync\nconfig: {context_headers: [a" + strings.Repeat(", a", 16) + "]}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			repository := newFiles("agents/ok.yaml", okAgent, "connectors/a.yaml", c.text)
			_, err := bundle.Parse(repository)
			require.Equal(t, c.isWithin, err == nil, err)
			refused, _ := validateFile(t, all, "connectors/a.yaml", []byte(c.text))
			require.Equal(t, c.isWithin, refused == nil, refused)
		})
	}
}

// mutateValues calls try after each change of a value inside, and undoes the change.
func mutateValues(value any, try func(about string)) {
	wrong := []any{"zzz", 0.5, float64(-1), true, []any{"zzz"}, map[string]any{"zzz": float64(1)}}
	switch v := value.(type) {
	case map[string]any:
		v["zzz"] = "x"
		try("a key more")
		delete(v, "zzz")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			was := v[key]
			delete(v, key)
			try("without " + key)
			for _, other := range append(wrong, nil) {
				v[key] = other
				try(fmt.Sprintf("%s: %v", key, other))
			}
			v[key] = was
			mutateValues(was, try)
		}
	case []any:
		for i, was := range v {
			for _, other := range append(wrong, nil) {
				v[i] = other
				try(fmt.Sprintf("[%d]: %v", i, other))
			}
			v[i] = was
			mutateValues(was, try)
		}
	}
}

// The schemas have each key that the parser knows, with its meaning, and everyKey writes each key.
func TestSchema_HasEveryKey(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for kind, root := range goTypes {
		t.Run(string(kind), func(t *testing.T) {
			text, err := bundle.FullSchema(kind)
			require.NoError(t, err)
			var s map[string]any
			require.NoError(t, json.Unmarshal(text, &s))
			var written []any
			for file, text := range everyKey() {
				if bundle.KindOf(file) == kind {
					var document any
					require.NoError(t, yaml.Unmarshal(text, &document))
					written = append(written, document)
				}
			}
			requireKeys(t, string(kind), root, s, written, found)
		})
	}
	for key, isWritten := range found {
		require.True(t, isWritten, "%s: write an example into its tags", key)
	}
	defaults, err := bundle.Schema(bundle.KindDefaults)
	require.NoError(t, err)
	require.NotContains(t, string(defaults), `"name": {`+"\n"+`      "description": "Name of the agent`)
	require.NotContains(t, string(defaults), `"variants"`)
	_, err = bundle.Schema("nothing")
	require.ErrorContains(t, err, "use one of agent, defaults, connector, model, suite, tools")
}

// An editor offers no key and no value that a build rejects as unsupported.
func TestSchema_OmitsUnsupportedKeys(t *testing.T) {
	t.Parallel()
	for _, k := range bundle.Kinds {
		data, err := bundle.Schema(k.Kind)
		require.NoError(t, err)
		text := string(data)
		name := func(key bundle.Key) string {
			return strings.TrimSuffix(key.Path[strings.LastIndex(key.Path, ".")+1:], "[]")
		}
		supported := map[string]bool{} // names of keys; an unsupported key elsewhere may have the same name
		for _, key := range bundle.Keys(k.Kind) {
			supported[name(key)] = supported[name(key)] || !key.Unsupported
		}
		for _, key := range bundle.Keys(k.Kind) {
			if !supported[name(key)] {
				require.False(t, strings.Contains(text, `"`+name(key)+`"`), key.Path)
			}
			for _, value := range key.UnsupportedValues {
				require.NotRegexp(t, `"enum": \[[^\]]*"`+value+`"`, text, key.Path)
			}
		}
		if k.Kind == bundle.KindAgent {
			require.NotContains(t, text, `"remote"`, "the type is unsupported")
			require.Contains(t, text, `"tool_name"`)
			require.Contains(t, text, `"system_prompt"`)
		}
	}
}

// A problem suggests no unsupported key. The problem of an unsupported key takes precedence over problems inside it.
func TestProblems_OmitUnsupportedKeys(t *testing.T) {
	t.Parallel()
	var supported []string
	for _, key := range bundle.Keys(bundle.KindAgent) {
		if !strings.Contains(key.Path, ".") && !key.Unsupported {
			supported = append(supported, strings.TrimSuffix(key.Path, "[]"))
		}
	}
	slices.Sort(supported)
	require.Contains(t, supported, "system_prompt")
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key":           {"zzzzz: 1\n", "use one of " + strings.Join(supported, ", ")},
		"a misspelled key":         {"aproval: {}\n", "use one of"},
		"an unknown type":          {"type: magic\n", `"type" must be one of llm, sequential, tool`},
		"a key of a later release": {"url: https://x.example.com\n", `"url" is not supported by this release; remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent+c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, text := range map[string]string{
		"a nested unsupported key": "guardrails: {input: [{pattern: x}]}\n",
		"a list":                   "guardrails: []\n",
		"a text":                   "guardrails: strict\n",
		"many lines":               "guardrails:\n  input:\n    - type: magic\n      zzz: 1\n",
		"not a number":             "guardrails: {input: [{type: topic, topics: [x], threshold: high}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project, problems := bundle.Examine(newFiles("agents/ok.yaml", okAgent+text+"modle: x\n"))
			lines := strings.Split(problems.With(project.Unsupported()).Error(), "\n")
			require.Len(t, lines, 2)
			require.Equal(t, `agents/ok.yaml:3:1: "guardrails" is not supported by this release; remove it`, lines[0])
			require.Contains(t, lines[1], `unknown key "modle"`)
		})
	}
}

// requireKeys walks a struct, its schema and its documents, and records which keys are written.
func requireKeys(t *testing.T, at string, typ reflect.Type, s map[string]any, written []any, found map[string]bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
		var inside []any
		for _, one := range written {
			switch v := one.(type) {
			case []any:
				inside = append(inside, v...)
			case map[string]any:
				if typ.Kind() == reflect.Map {
					inside = slices.AppendSeq(inside, maps.Values(v))
				} else {
					inside = append(inside, v)
				}
			}
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if below, ok := s[key].(map[string]any); ok && typ.Kind() != reflect.Pointer {
				s = below
			}
		}
		typ, written = typ.Elem(), inside
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[bundle.Tool]() || typ == reflect.TypeFor[bundle.ModelMock]() || typ == reflect.TypeFor[bundle.Pattern]() || typ == reflect.TypeFor[bundle.ToolParameters]() {
		return
	}
	properties, _ := s["properties"].(map[string]any)
	for _, field := range reflect.VisibleFields(typ) {
		key := field.Tag.Get("yaml")
		if key == "" {
			continue
		}
		own, ok := properties[key].(map[string]any)
		require.True(t, ok, "%s has no %s", at, key)
		require.NotEmpty(t, own["description"], "%s.%s: write its meaning into the tag doc", at, key)
		var below []any
		for _, one := range written {
			if m, ok := one.(map[string]any); ok && m[key] != nil {
				below = append(below, m[key])
			}
		}
		name := typ.Name() + "." + key
		found[name] = found[name] || len(below) > 0
		requireKeys(t, at+"."+key, field.Type, own, below, found)
	}
}
