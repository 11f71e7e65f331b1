// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.starlark.net/starlark"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// anyValue draws a JSON value.
func anyValue() *rapid.Generator[any] {
	number := rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return json.Number(rapid.StringMatching(`-?[1-9][0-9]{0,40}|0`).Draw(t, "integer"))
		case 1:
			return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})\.[0-9]{1,40}([eE][+-]?[0-9]{1,2})?`).Draw(t, "fraction"))
		}
		float := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }).Draw(t, "float")
		text, err := json.Marshal(float)
		require.NoError(t, err)
		return json.Number(text)
	})
	scalar := rapid.OneOf(number, rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.String(), func(s string) any { return s }))
	var nested func(depth int) *rapid.Generator[any]
	nested = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return scalar
		}
		inner := nested(depth - 1)
		return rapid.OneOf(scalar,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), func(m map[string]any) any { return m }))
	}
	return nested(4)
}

// requireSame checks that two values are equal. Numbers have equal values, integers equal digits.
func requireSame(t require.TestingT, want, got any) {
	switch w := want.(type) {
	case json.Number:
		g, ok := got.(json.Number)
		require.True(t, ok, "%v", got)
		if w == "-0" || strings.ContainsAny(string(w), ".eE") {
			require.True(t, exactjson.EqualNumbers(w, g), "%s, %s", w, g)
		} else {
			require.Equal(t, w, g)
		}
	case []any:
		g, _ := got.([]any)
		require.Len(t, g, len(w))
		for i := range w {
			requireSame(t, w[i], g[i])
		}
	case map[string]any:
		g, _ := got.(map[string]any)
		require.Len(t, g, len(w))
		for key := range w {
			requireSame(t, w[key], g[key])
		}
	default:
		require.Equal(t, want, got)
	}
}

// A value that a script returns unchanged keeps its digits.
func TestPool_KeepsValues(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	rapid.Check(t, func(rt *rapid.T) {
		value := anyValue().Draw(rt, "value")
		args, err := json.Marshal(map[string]any{"x": value})
		require.NoError(rt, err)
		result, err := pool.Run(t.Context(), callOn("def run(x): return x\n", string(args)), nil)
		require.NoError(rt, err)
		var got any
		require.NoError(rt, exactjson.Decode(result.Value, &got))
		requireSame(rt, value, got)
	})
}

func TestEncodeValue_WritesNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"9007199254740993": "9007199254740993", "123456789012345678901234567890": "123456789012345678901234567890", "-0": "0", "1.0": "1.0",
		"1e2": "100.0", "-0.0": "-0.0", "1e21": "1e+21", "1e-7": "1e-07", "0.1": "0.1", "0.1000000000000000055511151231257827": "0.1000000000000000055511151231257827",
		"12345678901234567890.5": "12345678901234567890.5",
	} {
		t.Run(text, func(t *testing.T) {
			value, err := decodeValue([]byte(text))
			require.NoError(t, err)
			got, err := encodeValue(value, 100)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		})
	}
}

// The order of keys does not change.
func TestDecodeValue_KeepsOrder(t *testing.T) {
	t.Parallel()
	const text = `{"b":1,"a":{"d":[true,false,null],"c":"\u0001 \" \\ é \n"}}`
	value, err := decodeValue([]byte(text))
	require.NoError(t, err)
	got, err := encodeValue(value, 1000)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func TestDecodeValue_RejectsInvalidTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "invalid JSON", "[": "invalid JSON", "nan": "invalid JSON", "1e400": "the number is too large",
		strings.Repeat("[", 65) + strings.Repeat("]", 65):           "more than 64 nested",
		strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65): "more than 64 nested",
		strings.Repeat("9", 1001):                                   "1000 characters",
		strings.Repeat("[", 1_000_000):                              "invalid JSON",
	} {
		t.Run(text[:min(len(text), 10)], func(t *testing.T) {
			_, err := decodeValue([]byte(text))
			require.ErrorContains(t, err, want)
		})
	}
}

// Shared lists are small in memory and large as text.
func TestEncodeValue_EndsAtLimit(t *testing.T) {
	t.Parallel()
	list := starlark.NewList(nil)
	for range 60 {
		list = starlark.NewList([]starlark.Value{list, list})
	}
	_, err := encodeValue(list, 1000)
	require.ErrorIs(t, err, errTooLarge)
	huge := starlark.MakeInt(1).Lsh(10_000)
	_, err = encodeValue(huge, 1<<20)
	require.EqualError(t, err, "an integer has more than 1000 digits")
	_, err = encodeValue(starlark.String(strings.Repeat("a", 100)), 99)
	require.ErrorIs(t, err, errTooLarge)
}

func TestLongNumber_ComparesDigits(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	call := callOn("def run(a, b):\n  return [type(a), a == a, a == b, float(str(a)), {a: 1}[a]]\n", `{"a":0.1000000000000000000001,"b":0.1000000000000000000002}`)
	result, err := pool.Run(t.Context(), call, nil)
	require.NoError(t, err)
	require.Equal(t, `["long_number",true,false,0.1,1]`, string(result.Value))
}

// FuzzReadFrame: no stream of bytes makes a reader fail other than by an error, or allocate more than it reads.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x10\x00\x00{"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := strings.NewReader(string(stream))
		for {
			frame, err := readFrame(r)
			if err != nil {
				return
			}
			require.LessOrEqual(t, len(frame), len(stream))
			if message, err := decodeMessage[fromChild](frame); err == nil {
				var written strings.Builder
				if writeMessage(&written, message) == nil {
					again, err := readFrame(strings.NewReader(written.String()))
					require.NoError(t, err)
					require.True(t, json.Valid(again))
				}
			}
		}
	})
}

// FuzzDecodeValue: a value that is decoded can be encoded again.
func FuzzDecodeValue(f *testing.F) {
	f.Add(`{"a": [1, 2.5, "x\u0000", null, 1e5, 0.10000000000000000000001]}`)
	f.Fuzz(func(t *testing.T, text string) {
		value, err := decodeValue([]byte(text))
		if err != nil {
			return
		}
		encoded, err := encodeValue(value, 10*len(text)+100)
		require.NoError(t, err, fmt.Sprint(text))
		require.True(t, json.Valid(encoded))
	})
}
