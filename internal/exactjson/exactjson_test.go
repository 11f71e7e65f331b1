// SPDX-License-Identifier: Apache-2.0

package exactjson_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// A value is encoded with the digits that it was decoded from.
func TestDecode_KeepsDigits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a":[9007199254740993,{"b":7615917337495251231}]}`, `99999999999999999999`, `0.1000000000000000055511151231257827`,
		`1e400`, `1.0`, `-0`, `6E1`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var value any
			require.NoError(t, exactjson.Decode([]byte(text), &value))
			again, err := json.Marshal(value)
			require.NoError(t, err)
			require.Equal(t, text, string(again))
		})
	}
}

func TestDecode_RejectsInvalidTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, ` `, `{`, `1 2`, `{} x`, `{}}`, `01`} {
		var value any
		require.Error(t, json.Unmarshal([]byte(text), &value), text)
		require.Error(t, exactjson.Decode([]byte(text), &value), text)
	}
}

func TestEqualNumbers_ComparesValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b  json.Number
		equal bool
	}{
		{"1", "1.0", true}, {"10", "1e1", true}, {"1.50", "15E-1", true}, {"0", "-0.0e7", true}, {"0e99999999999999999999", "0", true},
		{"9007199254740993", "9007199254740992", false}, {"9007199254740993", "9007199254740993.00", true},
		{"0.1", "0.1000000000000000055511151231257827", false}, {"1", "-1", false}, {"100", "10", false},
		{"1e400", "1e401", false}, {"1e400", "10e399", true}, {"1e99999999999999999999", "1e99999999999999999998", false},
	} {
		t.Run(fmt.Sprint(tt.a, " and ", tt.b), func(t *testing.T) {
			require.Equal(t, tt.equal, exactjson.EqualNumbers(tt.a, tt.b), "%s, %s", tt.a, tt.b)
		})
	}
}

// Any two numbers are equal if and only if their fractions are.
func TestEqualNumbers_AgreesWithFractions(t *testing.T) {
	t.Parallel()
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,2}0{0,2})(\.[0-9]{1,3})?([eE][+-]?[0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		require.Equal(t, x.Cmp(y) == 0, exactjson.EqualNumbers(json.Number(a), json.Number(b)))
	})
}

func TestNumber_ConvertsToGoTypes(t *testing.T) {
	t.Parallel()
	type is struct {
		integer  int64
		isInt    bool
		unsigned uint64
		isUint   bool
		isDouble bool
	}
	for text, want := range map[json.Number]is{
		"0":                                    {0, true, 0, true, true},
		"-0":                                   {0, true, 0, true, true},
		"60.0":                                 {60, true, 60, true, true},
		"6e1":                                  {60, true, 60, true, true},
		"-7":                                   {-7, true, 0, false, true},
		"0.1":                                  {0, false, 0, false, true},
		"9007199254740993":                     {9007199254740993, true, 9007199254740993, true, false},
		"9223372036854775807":                  {9223372036854775807, true, 9223372036854775807, true, false},
		"-9223372036854775808":                 {-9223372036854775808, true, 0, false, false},
		"18446744073709551615":                 {0, false, 18446744073709551615, true, false},
		"18446744073709551616":                 {0, false, 0, false, false},
		"99999999999999999999":                 {0, false, 0, false, false},
		"1e400":                                {0, false, 0, false, false},
		"0.1000000000000000055511151231257827": {0, false, 0, false, false},
	} {
		t.Run(string(text), func(t *testing.T) {
			t.Parallel()
			var got is
			got.integer, got.isInt = exactjson.Int64(text)
			got.unsigned, got.isUint = exactjson.Uint64(text)
			_, got.isDouble = exactjson.Float64(text)
			if !got.isInt {
				got.integer = 0
			}
			if !got.isUint {
				got.unsigned = 0
			}
			require.Equal(t, want, got)
		})
	}
}
