// SPDX-License-Identifier: Apache-2.0

// Package jsonscan looks through JSON of strangers without building anything
// from it: whatever the text is, reading it takes no memory. A Scanner reads a
// text that is there, a Stream checks one that is still on its way.
package jsonscan

import "strconv"

// Kind says what a token is.
type Kind byte

// Kinds of tokens. Commas, colons and space are none.
const (
	OpenObject  Kind = '{'
	CloseObject Kind = '}'
	OpenList    Kind = '['
	CloseList   Kind = ']'
	Key         Kind = ':'
	Scalar      Kind = '0' // a string that is no key, a number, true, false or null
)

// Token is one token.
type Token struct {
	Kind Kind
	// Text is the token as it is written; that of a key has quotes and escapes.
	Text []byte
}

// Scanner reads one JSON text from its beginning.
type Scanner struct{ rest []byte }

// New returns a scanner of a text that json.Valid says is valid. Of any other its
// tokens are without meaning, but they end.
func New(valid []byte) *Scanner { return &Scanner{rest: valid} }

// Next returns the next token; false when there is none.
func (s *Scanner) Next() (Token, bool) {
	for i, c := range s.rest {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		case '{', '}', '[', ']':
			return s.take(i, i+1, Kind(c)), true
		case '"':
			end := endOfString(s.rest, i)
			if beforeColon(s.rest[end:]) {
				return s.take(i, end, Key), true
			}
			return s.take(i, end, Scalar), true
		default:
			return s.take(i, endOfWord(s.rest, i), Scalar), true
		}
	}
	return Token{}, false
}

func (s *Scanner) take(begin, end int, kind Kind) Token {
	text := s.rest[begin:end]
	s.rest = s.rest[end:]
	return Token{Kind: kind, Text: text}
}

// endOfString is the index after the string that begins at an index.
func endOfString(text []byte, begin int) int {
	for i := begin + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func endOfWord(text []byte, begin int) int {
	for i := begin; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\r', '\n', ',', ':', '{', '}', '[', ']', '"':
			return i
		}
	}
	return len(text)
}

func beforeColon(text []byte) bool {
	for _, c := range text {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == ':'
		}
	}
	return false
}

// Is says whether a key has a name, of lower-case letters, however it is escaped.
func (t Token) Is(name string) bool {
	if t.Kind != Key || len(t.Text) < len(`""`) {
		return false
	}
	rest := t.Text[1 : len(t.Text)-1]
	for _, want := range []byte(name) {
		c, width := character(rest)
		if c != uint64(want) {
			return false
		}
		rest = rest[width:]
	}
	return len(rest) == 0
}

// character is the number of a key's first character and how many bytes it takes;
// that of no lower-case letter when it is not ASCII or escaped by a name.
func character(text []byte) (c uint64, width int) {
	switch {
	case len(text) == 0:
		return 0, 0
	case text[0] != '\\':
		return uint64(text[0]), 1
	case len(text) < 6 || text[1] != 'u':
		return 0, 0
	}
	c, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return c, 6
}

// Size is how much memory a text asks of who decodes it.
type Size struct {
	// Values counts objects, lists, strings, numbers, true, false and null; keys
	// do not count.
	Values int
	// Depth is how many objects and lists stand in each other, 1 for {}.
	Depth int
}

// Measure counts what valid JSON holds.
func Measure(valid []byte) Size {
	var size Size
	depth := 0
	for s := New(valid); ; {
		token, ok := s.Next()
		if !ok {
			return size
		}
		switch token.Kind {
		case OpenObject, OpenList:
			depth++
			size.Depth = max(size.Depth, depth)
			size.Values++
		case CloseObject, CloseList:
			depth--
		case Scalar:
			size.Values++
		}
	}
}
