// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

func TestCheckArguments_NamesFields(t *testing.T) {
	t.Parallel()
	parameters := map[string]any{
		"type": "object", "required": []string{"order"}, "additionalProperties": false,
		"properties": map[string]any{"order": map[string]any{"type": "integer"}, "note": map[string]any{"type": "string", "pattern": "^[a-z]*$"}},
	}
	for name, c := range map[string]struct{ args, want string }{
		"valid":               {`{"order":12,"note":"late"}`, ""},
		"integer beyond 2^53": {`{"order":9007199254740993}`, ""},
		"missing":             {`{}`, "the arguments do not fit: order: is missing"},
		"several":             {`{"order":"12","extra":1}`, "the arguments do not fit: extra: is unknown; leave it out; order: must be of type integer, not string"},
		"huge number":         {`{"order":1e400}`, "the arguments of the tool cannot be used as JSON"},
		"long text":           {`{"order":1,"note":"` + strings.Repeat("X", 100_000) + `"}`, "note: must match the pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			schema, err := CompileArguments("look", parameters)
			require.NoError(t, err)
			var args map[string]any
			require.NoError(t, exactjson.Decode([]byte(c.args), &args))
			err = CheckArguments(schema, args)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.LessOrEqual(t, len(err.Error()), 2<<10)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// A tool without parameters takes none, and a call without arguments has none.
func TestCheckArguments_ToolWithoutParameters(t *testing.T) {
	t.Parallel()
	schema, err := CompileArguments("look", nil)
	require.NoError(t, err)
	require.NoError(t, CheckArguments(schema, nil))
	require.ErrorContains(t, CheckArguments(schema, map[string]any{"a": true}), "a: is unknown")
	_, err = CompileArguments("look", map[string]any{"type": "text"})
	require.ErrorContains(t, err, `the parameters of tool "look"`)
}

// The schemas of all built-in tools compile.
func TestCompileArguments_BuiltinTools(t *testing.T) {
	t.Parallel()
	for _, tool := range Builtin(nil) {
		t.Run(tool.Name, func(t *testing.T) {
			_, err := CompileArguments(tool.Name, tool.Parameters)
			require.NoError(t, err)
		})
	}
}
