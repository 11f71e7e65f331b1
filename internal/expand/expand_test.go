// SPDX-License-Identifier: Apache-2.0

package expand_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expand"
)

func lookup(name string) (string, bool) {
	value, known := map[string]string{"A": "a", "B_1": "${A}", "EMPTY": "", "LONG": strings.Repeat("x", 64<<10)}[name]
	return value, known
}

func TestText_ReplacesVariables(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     "",
		"plain $ $$ $x {A} }":  "plain $ $$ $x {A} }",
		"${A}":                 "a",
		"x${A}y${A}${EMPTY}z":  "xayaz",
		"${B_1}":               "${A}", // values are not expanded again
		"$${A}":                "${A}",
		"$${${A}":              "${a",
		"$$${A}":               "$${A}",
		"${NONE} ${A} ${OTHER": "",
		"ü${A}ß":               "üaß",
	} {
		t.Run(text, func(t *testing.T) {
			e := expand.Expansion{Lookup: lookup}
			got, err := e.Text(text)
			if want == "" && text != "" {
				require.ErrorIs(t, err, expand.ErrMalformed)
				require.ErrorIs(t, expand.Check(text), expand.ErrMalformed)
				return
			}
			require.NoError(t, err)
			require.NoError(t, expand.Check(text))
			require.Equal(t, want, got)
			require.Empty(t, e.Missing())
		})
	}
	for _, text := range []string{"${", "${}", "${1}", "${A B}", "${A", "${A-B}", "$${${"} {
		require.ErrorIs(t, expand.Check(text), expand.ErrMalformed, text)
	}
}

func TestMissing_ListsUnknownNames(t *testing.T) {
	t.Parallel()
	e := expand.Expansion{Lookup: lookup}
	for _, text := range []string{"${Z}${A}${Y}", "${Z}"} {
		_, err := e.Text(text)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"Y", "Z"}, e.Missing())
}

func TestJSON_ExpandsTexts(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`{"a":["${A}",{"b":"$${A}"}],"n":12345678901234567890.10,"t":true,"z":null}`: `{"a":["a",{"b":"${A}"}],"n":12345678901234567890.10,"t":true,"z":null}`,
		`{"a":"\u0024{A}","b":"$\u007bA}"}`:                                          `{"a":"a","b":"a"}`,
		`{ "as": "it is" }`:                                                          `{ "as": "it is" }`,
		`"${A}<"`:                                                                    `"a<"`,
	} {
		t.Run(document, func(t *testing.T) {
			e := expand.Expansion{Lookup: lookup}
			got, err := e.JSON([]byte(document))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		})
	}
	e := expand.Expansion{Lookup: lookup}
	_, err := e.JSON([]byte(`{"${A}":1}`))
	require.ErrorIs(t, err, expand.ErrInKey)
	_, err = e.JSON([]byte(`{"a":"${"}`))
	require.ErrorIs(t, err, expand.ErrMalformed)
	_, err = e.JSON([]byte(`{"a":"${A}"`))
	require.ErrorContains(t, err, "is no JSON")
}

func TestExpansion_LimitsSize(t *testing.T) {
	t.Parallel()
	e := expand.Expansion{Lookup: lookup}
	_, err := e.Text(strings.Repeat("${LONG}", 5))
	require.ErrorIs(t, err, expand.ErrTooLarge)
	e = expand.Expansion{Lookup: lookup}
	for range 4 {
		_, err = e.Text("${LONG}")
		require.NoError(t, err)
	}
	_, err = e.Text("x")
	require.ErrorIs(t, err, expand.ErrTooLarge, "all texts together")
	e = expand.Expansion{Lookup: lookup}
	_, err = e.JSON([]byte(`["` + strings.Repeat("x", expand.MaxSize) + `"]`))
	require.ErrorIs(t, err, expand.ErrTooLarge)
}

func FuzzText(f *testing.F) {
	for _, text := range []string{"${A}", "$${A}", "${", "$$${A}$", "{${B_1}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := expand.Expansion{Lookup: func(name string) (string, bool) { return "<" + name + ">", true }}
		got, err := e.Text(text)
		if err != nil {
			return
		}
		require.NoError(t, expand.Check(text))
		// An escaped text expands to itself.
		again, err := e.Text(strings.ReplaceAll(got, "${", "$${"))
		if err == nil {
			require.Equal(t, got, again)
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"a":["${A}",1.0]}`)
	f.Add(`{"a":"\u0024{A}"}`)
	f.Fuzz(func(t *testing.T, document string) {
		if !json.Valid([]byte(document)) {
			return
		}
		e := expand.Expansion{Lookup: lookup}
		if got, err := e.JSON([]byte(document)); err == nil {
			require.True(t, json.Valid(got), "%q", got)
		}
	})
}
