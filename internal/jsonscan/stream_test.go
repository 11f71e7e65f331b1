// SPDX-License-Identifier: Apache-2.0

package jsonscan_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// streamed returns the tokens and the error of a stream for a text in pieces of this size: raw
// keys, and the kinds of other tokens.
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

// texts are valid and invalid texts for each position.
var texts = []string{
	`{}`, `[]`, ` {"a" : [ 1 , "b:{" , {"c\"":null} ] , "d":{}} `, `0`, `-0`, `-1.5e+3`, `1E9`, `12.03e-1`, `true`, `false`, `null`, `"x"`,
	`"\u00e9\\\/\b\f\n\r\t"`, `"\ud83d\ude00\uD83D\uDE00"`, "\"é€😀\u007f\"", `{"é\ud83d\ude00":1}`, `[[],[[]],{"":{}}]`, "\t[\r\n]", `{"a":1,"a":2}`,
	``, ` `, `{`, `}`, `[`, `]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a" 1}`, `{1:2}`, `{"a":1 "b":2}`,
	`01`, `-`, `1.`, `.5`, `1e`, `1e+`, `+1`, `1.2.3`, `1e2e3`, `0x1`, `--1`, `1-`, `tru`, `trux`, `nulll`, `"`, `"\x"`, `"\u12g4"`, `"\u12"`,
	"\"\x01\"", `{"a\`, `[1,2`, `{} {}`, `1 2`, "\x00", `{"a":tru}`, `[nul]`, "\ufeff{}", `{"a":1]`, `[1}`,
}

// unfit are texts that json.Valid accepts and a Stream rejects, with the problem.
var unfit = map[string]string{
	"\"\xff\"":                              "line 1, column 2: the text is not UTF-8",
	"{\"a\":\"caf\xe9\"}":                   "line 1, column 10: the text is not UTF-8",
	"{\n \"é\":\"\xe9\x80x\"}":              "line 2, column 7: the text is not UTF-8",
	"{\"\xc0\x80\":1}":                      "line 1, column 3: the text is not UTF-8",
	"\"\xed\xa0\x80\"":                      "line 1, column 2: the text is not UTF-8",
	"\"\xf4\x90\x80\x80\"":                  "line 1, column 2: the text is not UTF-8",
	"\"\xe9\"":                              "line 1, column 2: the text is not UTF-8",
	`["\ud800"]`:                            "line 1, column 3: an escape is half of a surrogate pair, which is not a character",
	`"\udc00"`:                              "line 1, column 2: an escape is half of a surrogate pair, which is not a character",
	`"\ud800x"`:                             "line 1, column 2: an escape is half of a surrogate pair, which is not a character",
	`"\ud800\n"`:                            "line 1, column 2: an escape is half of a surrogate pair, which is not a character",
	`"\ud800\u0041"`:                        "line 1, column 2: an escape is half of a surrogate pair, which is not a character",
	`"\ud800\ud800\udc00"`:                  "line 1, column 2: an escape is half of a surrogate pair, which is not a character",
	`{"\ude00\ud83d":1}`:                    "line 1, column 3: an escape is half of a surrogate pair, which is not a character",
	`{"n":1e400}`:                           "line 1, column 6: the number is too large",
	"[\n\t-1E+309\n]":                       "line 2, column 2: the number is too large",
	"1" + strings.Repeat("0", 309):          "line 1, column 1: the number is too large",
	"[0." + strings.Repeat("1", 999) + "]":  "line 1, column 2: the number has more than 1000 characters",
	"[0e" + strings.Repeat("0", 999) + "1]": "line 1, column 2: the number has more than 1000 characters",
}

func TestStream_RejectsUnreadableValues(t *testing.T) {
	t.Parallel()
	for text, want := range unfit {
		t.Run(text, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				require.True(t, json.Valid([]byte(text)), text)
				_, err := streamed(text, size)
				require.ErrorIs(t, err, jsonscan.ErrInvalid, text)
				require.EqualError(t, err, want, text)
			}
			require.EqualError(t, jsonscan.Check([]byte(text)), want)
		})
	}
}

// Finite numbers are accepted with all their digits.
func TestStream_NumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("9", 308), "-1" + strings.Repeat("0", 308), "0." + strings.Repeat("1", 998), "1e-400", "1.7976931348623157e308", "0e999999999",
	} {
		require.NoError(t, jsonscan.Check([]byte(text)), text)
	}
}

// The position is the first invalid character.
func TestSyntaxError_Position(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                         "line 1, column 1: unexpected end",
		"{\n  \"a\": tru\n}":       "line 2, column 11: unexpected character",
		"{\"é😀\": x}":              "line 1, column 8: unexpected character",
		"{\"a\":1,\r\n\n\"b\" 2}":  "line 3, column 5: unexpected character",
		`{"a":"b`:                  "line 1, column 8: unexpected end",
		"\"a\nb\"":                 "line 1, column 3: unexpected character",
		strings.Repeat("[", 10001): "line 1, column 10001: more than 10000 objects and lists are nested",
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			for _, size := range []int{1, 4, 1 << 20} {
				_, err := streamed(text, size)
				require.EqualError(t, err, want, "%.40q", text)
			}
		})
	}
}

func TestStream_AcceptsValidTexts(t *testing.T) {
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

// The tokens equal the tokens of a scanner.
func TestStream_ReportsTokens(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("k", 60) + `"`
	for text, want := range map[string][]string{
		`{"a\"" : [1,"b:",true] }`:         {"{", `"a\""`, "[", "0", "0", "0", "]", "}"},
		`{"f\u0069les":{"":0}}`:            {"{", `"f\u0069les"`, "{", `""`, "0", "}", "}"},
		`-1.5`:                             {"0"},
		`{` + long + `:1}`:                 {"{", long, "0", "}"},
		`{"k` + long[1:] + `:1,"files":2}`: {"{", "", "0", `"files"`, "0", "}"},
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				got, err := streamed(text, size)
				require.NoError(t, err, text)
				require.Equal(t, want, got, text)
			}
		})
	}
}

// The kept part of a long key does not match a name.
func TestStream_LongKeyMatchesNoName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"\u0066\u0069\u006c\u0065\u0073":0}`:           true,
		`{"files` + strings.Repeat("x", 1000) + `":0}`:   false,
		`{"` + strings.Repeat("x", 1000) + `files":0}`:   false,
		`{"` + strings.Repeat("x", 1000) + `":0,"a":1}`:  false,
		`{"` + strings.Repeat(`\"`, 1000) + `files":{}}`: false,
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			found := false
			s := jsonscan.NewStream(func(t jsonscan.Token) { found = found || t.Is("files") })
			_, err := s.Write([]byte(text))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.Equal(t, want, found, text)
		})
	}
}

func TestStream_NeedsConstantMemory(t *testing.T) { // not parallel, because the memory of other tests would count
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

var surrogate = regexp.MustCompile(`(?i)\\ud[89a-f]`)

// carried reports whether encoding/json keeps all of a short text without surrogates.
func carried(text string) bool {
	var value any
	return len(text) <= jsonscan.MaxNumber && utf8.ValidString(text) && !surrogate.MatchString(text) && json.Unmarshal([]byte(text), &value) == nil
}

// FuzzStream checks that the stream accepts the texts that encoding/json keeps, for any pieces, and
// that a scanner returns the same tokens.
func FuzzStream(f *testing.F) {
	for _, text := range texts {
		f.Add(text, 1)
	}
	for text := range unfit {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		tokens, err := streamed(text, max(size, 1))
		switch {
		case carried(text):
			require.NoError(t, err, text)
		case !json.Valid([]byte(text)) || !utf8.ValidString(text):
			require.ErrorIs(t, err, jsonscan.ErrInvalid, text)
		}
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
