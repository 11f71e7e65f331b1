// SPDX-License-Identifier: Apache-2.0

package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

func TestMeasure_CountsValuesAndDepth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jsonscan.Size{
		`1`:                                {Values: 1},
		` "a:b,{" `:                        {Values: 1},
		`{}`:                               {Values: 1, Depth: 1},
		`[]`:                               {Values: 1, Depth: 1},
		`{"a" : 1 , "b":"c"}`:              {Values: 3, Depth: 1},
		`{"\"":-1.5e+3,"b\\":[true,null]}`: {Values: 5, Depth: 2},
		`[[],[[]],{"":{}}]`:                {Values: 6, Depth: 3},
		"[\"}\\\\\",\n\t\"]\\\"\"]":        {Values: 3, Depth: 1},
	} {
		t.Run(text, func(t *testing.T) {
			require.True(t, json.Valid([]byte(text)))
			require.Equal(t, want, jsonscan.Measure([]byte(text)))
		})
	}
}

func TestToken_IsIgnoresEscapes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"files":0}`: true, `{"f\u0069les":0}`: true, `{"\u0066\u0069\u006C\u0065\u0073" :0}`: true,
		`{"files\u0000":0}`: false, `{"file":0}`: false, `{"filess":0}`: false, `{"\\u0066iles":0}`: false,
		`{"\files":0}`: false, `{"Files":0}`: false, `{"":"files"}`: false, `{"\u0166iles":0}`: false, `["files"]`: false,
	} {
		t.Run(text, func(t *testing.T) {
			found := false
			for s := jsonscan.New([]byte(text)); ; {
				token, ok := s.Next()
				if !ok {
					break
				}
				found = found || token.Is("files")
			}
			require.Equal(t, want, found)
		})
	}
}

func TestScanner_AllocatesNothing(t *testing.T) { // not parallel, because the memory of other tests would count
	text := []byte(`{"a":[` + strings.Repeat(`{"\u0061\u0062\u0063d":"x"},`, 1000) + `0]}`)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		jsonscan.Measure(text)
		for s := jsonscan.New(text); ; {
			token, ok := s.Next()
			if !ok {
				return
			}
			token.Is("abc")
		}
	}))
}

// FuzzMeasure checks that the scanner counts the same as encoding/json, and that it ends for any
// text.
func FuzzMeasure(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"b",{}]}`, `"`, `{"a\`, `[1,2`, `{"a" :null}`, "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		size := jsonscan.Measure(text)
		if !json.Valid(text) || strings.Contains(string(text), `"`) {
			return // encoding/json keeps one of two equal keys
		}
		var value any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // some are too large for float64
		require.NoError(t, d.Decode(&value))
		require.Equal(t, count(value), size.Values)
	})
}

func count(value any) int {
	n := 1
	if list, ok := value.([]any); ok {
		for _, v := range list {
			n += count(v)
		}
	}
	return n
}
