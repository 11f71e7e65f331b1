// SPDX-License-Identifier: Apache-2.0

package jsonscan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// streamed is what a stream says of a text that comes in pieces of a size, and its
// tokens: the keys as they are written, of the others what they are.
func streamed(text string, size int) (tokens []string, err error) {
	s := jsonscan.NewStream(func(t jsonscan.Token) {
		if t.Kind == jsonscan.Key {
			tokens = append(tokens, string(t.Text))
			return
		}
		tokens = append(tokens, string(t.Kind))
	})
	for len(text) > 0 {
		n := min(size, len(text))
		if _, err := s.Write([]byte(text[:n])); err != nil {
			return tokens, err
		}
		text = text[n:]
	}
	return tokens, s.Close()
}

// texts are valid and not, at each place where a text may go wrong.
var texts = []string{
	`{}`, `[]`, ` {"a" : [ 1 , "b:{" , {"c\"":null} ] , "d":{}} `, `0`, `-0`, `-1.5e+3`, `1E9`, `12.03e-1`, `true`, `false`, `null`, `"x"`,
	`"\u00e9\ud800\\\/\b\f\n\r\t"`, "\"\xff\"", `[[],[[]],{"":{}}]`, "\t[\r\n]", `{"a":1,"a":2}`,
	``, ` `, `{`, `}`, `[`, `]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a" 1}`, `{1:2}`, `{"a":1 "b":2}`,
	`01`, `-`, `1.`, `.5`, `1e`, `1e+`, `+1`, `1.2.3`, `1e2e3`, `0x1`, `--1`, `1-`, `tru`, `trux`, `nulll`, `"`, `"\x"`, `"\u12g4"`, `"\u12"`,
	"\"\x01\"", `{"a\`, `[1,2`, `{} {}`, `1 2`, "\x00", `{"a":tru}`, `[nul]`, "\ufeff{}", `{"a":1]`, `[1}`,
}

func TestAStreamTakesWhatIsValid(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 10_000)
	for _, text := range append(texts, deep+strings.Repeat("]", 10_000), "["+deep+strings.Repeat("]", 10_001)) {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			_, err := streamed(text, size)
			if json.Valid([]byte(text)) {
				require.NoError(t, err, "%.40q in pieces of %d", text, size)
			} else {
				require.ErrorIs(t, err, jsonscan.ErrInvalid, "%.40q in pieces of %d", text, size)
			}
		}
	}
}

// TestAStreamShowsTheTokensOfAText: those that a scanner finds in it.
func TestAStreamShowsTheTokensOfAText(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("k", 60) + `"`
	for text, want := range map[string][]string{
		`{"a\"" : [1,"b:",true] }`:         {"{", `"a\""`, "[", "0", "0", "0", "]", "}"},
		`{"f\u0069les":{"":0}}`:            {"{", `"f\u0069les"`, "{", `""`, "0", "}", "}"},
		`-1.5`:                             {"0"},
		`{` + long + `:1}`:                 {"{", long, "0", "}"},
		`{"k` + long[1:] + `:1,"files":2}`: {"{", "", "0", `"files"`, "0", "}"},
	} {
		for _, size := range []int{1, 3, 1 << 20} {
			got, err := streamed(text, size)
			require.NoError(t, err, text)
			require.Equal(t, want, got, text)
		}
	}
}

// TestALongKeyIsNoName: what was not kept of it is not taken for another.
func TestALongKeyIsNoName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"\u0066\u0069\u006c\u0065\u0073":0}`:           true,
		`{"files` + strings.Repeat("x", 1000) + `":0}`:   false,
		`{"` + strings.Repeat("x", 1000) + `files":0}`:   false,
		`{"` + strings.Repeat("x", 1000) + `":0,"a":1}`:  false,
		`{"` + strings.Repeat(`\"`, 1000) + `files":{}}`: false,
	} {
		found := false
		s := jsonscan.NewStream(func(t jsonscan.Token) { found = found || t.Is("files") })
		_, err := s.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, want, found, text)
	}
}

func TestAStreamTakesNoMemory(t *testing.T) { // not beside others, whose memory would count
	text := []byte(`{"a":[` + strings.Repeat(`{"\u0061\u0062\u0063d":"x","`+strings.Repeat("k", 100)+`":-1.5e3},`, 1000) + `0]}`)
	names := 0
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
		s := jsonscan.NewStream(func(t jsonscan.Token) {
			if t.Is("abc") {
				names++
			}
		})
		_, err := s.Write(text)
		if err != nil || s.Close() != nil {
			t.Error("the text is valid")
		}
	}), 3.0, "the stream itself")
}

// FuzzStream: it takes what encoding/json takes, whatever the pieces, and its
// tokens are those of a scanner.
func FuzzStream(f *testing.F) {
	for _, text := range texts {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		tokens, err := streamed(text, max(size, 1))
		require.Equal(t, json.Valid([]byte(text)), err == nil, text)
		if err != nil {
			return
		}
		scanned := 0
		for s := jsonscan.New([]byte(text)); ; scanned++ {
			if _, more := s.Next(); !more {
				break
			}
		}
		require.Len(t, tokens, scanned, text)
	})
}
