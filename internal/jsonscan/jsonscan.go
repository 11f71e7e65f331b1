// SPDX-License-Identifier: Apache-2.0

// Package jsonscan checks untrusted JSON without building values from it, so it needs constant
// memory. A Scanner reads a complete text, a Stream checks a text that arrives in pieces.
package jsonscan

import "strconv"

// Kind is the kind of a token.
type Kind byte

// Kinds of tokens. Commas, colons and white space are not tokens.
const (
	OpenObject  Kind = '{'
	CloseObject Kind = '}'
	OpenList    Kind = '['
	CloseList   Kind = ']'
	Key         Kind = ':'
	Scalar      Kind = '0' // a string that is not a key, a number, true, false or null
)

// Token is one token.
type Token struct {
	Kind Kind
	// Text is the raw token. The text of a key has quotes and escapes.
	Text []byte
}

// Scanner reads one JSON text.
type Scanner struct{ rest []byte }

// New returns a scanner for a valid JSON text. For an invalid text its tokens have no meaning, but
// they end.
func New(valid []byte) *Scanner { return &Scanner{rest: valid} }

// Next returns the next token, or false at the end.
func (s *Scanner) Next() (Token, bool) {
	for i, c := range s.rest {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		case '{', '}', '[', ']':
			return s.takeToken(i, i+1, Kind(c)), true
		case '"':
			end := endOfString(s.rest, i)
			if beforeColon(s.rest[end:]) {
				return s.takeToken(i, end, Key), true
			}
			return s.takeToken(i, end, Scalar), true
		default:
			return s.takeToken(i, endOfWord(s.rest, i), Scalar), true
		}
	}
	return Token{}, false
}

func (s *Scanner) takeToken(begin, end int, kind Kind) Token {
	text := s.rest[begin:end]
	s.rest = s.rest[end:]
	return Token{Kind: kind, Text: text}
}

// endOfString returns the index after the string that begins at an index.
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

// Is reports whether a key equals a name of lower-case letters, regardless of escapes.
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

// character returns the first character of a key and its length in bytes. It returns no lower-case
// letter if the character is not ASCII or has a named escape.
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

// Size describes the memory that decoding a text needs.
type Size struct {
	// Values counts objects, lists, strings, numbers, true, false and null. Keys do not count.
	Values int
	// Depth is the depth of nested objects and lists, 1 for {}.
	Depth int
}

// Measure returns the size of valid JSON.
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
