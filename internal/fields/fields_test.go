// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/fields"
)

// write writes pairs with texts in pieces of this size.
func write(piece int, pairs ...[2]string) (string, error) {
	var out bytes.Buffer
	w := fields.NewWriter(&out)
	for _, pair := range pairs {
		if err := w.Begin([]byte(pair[0])); err != nil {
			return "", err
		}
		for rest := []byte(pair[1]); len(rest) > 0; {
			n := min(piece, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				return "", err
			}
			rest = rest[n:]
		}
		if err := w.End(); err != nil {
			return "", err
		}
	}
	w.Close()
	return out.String(), nil
}

func TestObject_ConvertsPairs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pairs [][2]string
		want  string
	}{
		"none":              {nil, `{}`},
		"in their order":    {[][2]string{{"b", "1"}, {"a", ""}}, `{"b":"1","a":""}`},
		"one key is a list": {[][2]string{{"a", "1"}, {"b", "2"}, {"a", "3"}, {"a", "1"}}, `{"a":["1","3","1"],"b":"2"}`},
		"an empty key":      {[][2]string{{"", "1"}}, `{"":"1"}`},
		"escapes":           {[][2]string{{"\"\\", "\x00\n\r\t\"\\/\x7f"}}, `{"\"\\":"\u0000\n\r\t\"\\/` + "\x7f" + `"}`},
		"characters":        {[][2]string{{"ä", "日本\u2028\U0001F600\uFFFD"}}, `{"ä":"日本` + "\u2028\U0001F600\uFFFD" + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, piece := range []int{1, 2, 3, 100} {
				pairs, err := write(piece, c.pairs...)
				require.NoError(t, err)
				object, err := fields.Object([]byte(pairs))
				require.NoError(t, err)
				require.Equal(t, c.want, string(object))
				require.True(t, json.Valid(object))
				require.LessOrEqual(t, len(object), len(pairs))
			}
		})
	}
}

func TestWriter_RejectsInvalidFields(t *testing.T) {
	t.Parallel()
	many := make([][2]string, fields.MaxFields)
	_, err := write(1, many...)
	require.NoError(t, err)
	_, err = write(1, append(many, [2]string{})...)
	require.ErrorIs(t, err, fields.ErrTooMany)
	_, err = write(1, [2]string{strings.Repeat("k", fields.MaxKey), ""})
	require.NoError(t, err)
	_, err = write(1, [2]string{strings.Repeat("k", fields.MaxKey+1), ""})
	require.ErrorIs(t, err, fields.ErrKey)
	for _, text := range []string{"\xff", "a\xc3", "\xc3a", "\xed\xa0\x80", "\xe6\x97"} {
		for _, piece := range []int{1, 2, 100} {
			_, err = write(piece, [2]string{"a", text})
			require.ErrorIs(t, err, fields.ErrEncoding, "%q", text)
			require.ErrorIs(t, err, fields.ErrInvalid)
		}
		_, err = write(1, [2]string{text, ""})
		require.ErrorIs(t, err, fields.ErrEncoding, "%q", text)
	}
	for _, pairs := range []string{``, `{}`, `[["a"`, `["a"]`} {
		_, err := fields.Object([]byte(pairs))
		require.Error(t, err, pairs)
	}
}

// FuzzWriter checks that texts in any pieces are written unchanged, or rejected if they are not
// UTF-8.
func FuzzWriter(f *testing.F) {
	for _, seed := range []string{"", "a", "\"\\\n", "日本", "\xe6\x97", "\xff"} {
		f.Add("key", seed, seed, 2)
	}
	f.Fuzz(func(t *testing.T, key, one, other string, piece int) {
		if len(key) > fields.MaxKey || piece < 1 || key == "other" {
			return
		}
		pairs, err := write(piece, [2]string{key, one}, [2]string{"other", other})
		if !utf8.ValidString(key) || !utf8.ValidString(one) || !utf8.ValidString(other) {
			require.ErrorIs(t, err, fields.ErrEncoding)
			return
		}
		require.NoError(t, err)
		object, err := fields.Object([]byte(pairs))
		require.NoError(t, err)
		var read map[string]string
		require.NoError(t, json.Unmarshal(object, &read))
		require.Equal(t, map[string]string{key: one, "other": other}, read)
	})
}
