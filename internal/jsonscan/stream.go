// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrInvalid says that a text is not JSON as the platform takes it.
var ErrInvalid = errors.New("not valid JSON")

// SyntaxError says where a text is not JSON as the platform takes it, and why. It is an ErrInvalid.
type SyntaxError struct {
	// Line and Column count from 1, in characters.
	Line, Column int
	// Problem never repeats what stands in the text.
	Problem string
}

// Error is the place and the problem.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Unwrap is ErrInvalid.
func (e *SyntaxError) Unwrap() error { return ErrInvalid }

// Check says what is wrong with a text as JSON; a *SyntaxError. It takes the texts that a Stream takes.
func Check(text []byte) error {
	s := NewStream(func(Token) {})
	_, _ = s.Write(text) // Close says the same
	return s.Close()
}

const (
	// MaxNumber is how many characters a number has at most.
	MaxNumber = 1000
	// maxDepth is how many objects and lists may stand in each other; encoding/json
	// takes no more either.
	maxDepth = 10_000
	// maxKey is how many bytes of a key are kept, with quotes and escapes. A name of
	// ten letters has no more however it is escaped.
	maxKey = 6*10 + 2
)

// state is what a Stream expects next.
type state byte

const (
	wantValue      state = iota
	wantValueOrEnd       // after [
	wantKeyOrEnd         // after {
	wantKey              // after a comma in an object
	wantColon
	wantNext    // after a value: a comma, or the end of what it stands in
	wantNothing // after the whole text
	inText      // in a string
	inEscape    // after its backslash
	inCode      // in the four digits of \u
	inWord      // in true, false or null
	inSign      // after the minus of a number
	inZero      // after a 0 that begins one
	inDigits
	inPoint    // after the point
	inFraction // in the digits after it
	inExponent // after e
	inExponentSign
	inExponentDigits
)

// Stream checks JSON that comes in pieces and shows its tokens as they end, and takes no memory
// that grows with the text. It takes the texts that json.Valid takes, if all that reads them later can
// carry them: strings are UTF-8 without half a surrogate pair, and numbers have at most MaxNumber
// characters and are finite as float64.
type Stream struct {
	visit func(Token)
	state state
	wrong *SyntaxError
	// line and column are how many lines and characters have ended before the next byte.
	line, column int
	// start is column at the beginning of the number, or of the escaped half of a pair.
	start int

	depth   int
	objects []byte // a bit a depth: whether it is an object, not a list

	key     bool   // the string is a key
	text    []byte // of the key or the number
	long    bool   // the key is too long to be kept
	codes   int    // digits of \u that are still to come
	code    rune   // those that came
	high    bool   // the first half of a surrogate pair was escaped, and the second has to follow
	partial []byte // of a character that has more bytes
	rest    string // of the word
}

// NewStream calls visit with each token. Of keys alone it has the text, which is
// valid during the call; a key that is too long to be kept has none, and is no
// name of ten letters or fewer.
func NewStream(visit func(Token)) *Stream {
	buffer := make([]byte, 0, maxKey+utf8.UTFMax)
	return &Stream{visit: visit, text: buffer[:0:maxKey], partial: buffer[maxKey:maxKey]}
}

// Reset lets the stream check another text, as a new one does.
func (s *Stream) Reset() {
	*s = Stream{visit: s.visit, objects: s.objects, text: s.text[:0], partial: s.partial[:0]}
}

// Write takes the next piece; a *SyntaxError when no text goes on so.
func (s *Stream) Write(piece []byte) (int, error) {
	for i := 0; i < len(piece) && s.wrong == nil; i++ {
		if s.state == inText && !s.key && !s.high && len(s.partial) == 0 {
			n := plain(piece[i:])
			s.column += n
			if i += n; i == len(piece) {
				break
			}
		}
		if !s.step(piece[i]) {
			s.fail(s.column, "unexpected character")
		}
		s.count(piece[i])
	}
	if s.wrong != nil {
		return 0, s.wrong
	}
	return len(piece), nil
}

// Close says what is wrong with a text that ends here; a *SyntaxError.
func (s *Stream) Close() error {
	if s.wrong == nil && s.number() && s.depth == 0 && s.endNumber() {
		s.after()
	}
	if s.wrong == nil && s.state != wantNothing {
		s.fail(s.column, "unexpected end")
	}
	if s.wrong != nil {
		return s.wrong
	}
	return nil
}

// Empty says whether nothing but white space has come.
func (s *Stream) Empty() bool { return s.wrong == nil && s.state == wantValue && s.depth == 0 }

// fail notes the first problem of the text; it returns false.
func (s *Stream) fail(column int, problem string) bool {
	if s.wrong == nil {
		s.wrong = &SyntaxError{Line: s.line + 1, Column: column + 1, Problem: problem}
	}
	return false
}

// count counts a byte that was taken. A character of several counts with its last.
func (s *Stream) count(c byte) {
	switch {
	case len(s.partial) > 0:
	case c == '\n':
		s.line, s.column = s.line+1, 0
	default:
		s.column++
	}
}

// plain is how many characters of a string, of one byte each, go by without another state.
func plain(text []byte) int {
	for i, c := range text {
		if c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(text)
}

// step takes one byte; false when no text goes on so.
func (s *Stream) step(c byte) bool {
	switch s.state {
	case inText, inEscape, inCode:
		return s.inString(c)
	case inWord:
		return s.inWord(c)
	case inSign, inZero, inDigits, inPoint, inFraction, inExponent, inExponentSign, inExponentDigits:
		if next, ok := s.inNumber(c); ok {
			s.state = next
			return s.keepDigit(c)
		}
		if !s.number() || !s.endNumber() {
			return false
		}
		s.after() // and c comes after it
	}
	return s.between(c)
}

// between takes a byte that is not inside a string, a word or a number.
func (s *Stream) between(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n':
		return true
	}
	switch s.state {
	case wantValue:
		return s.begin(c)
	case wantValueOrEnd:
		return c == ']' && s.leave() || c != ']' && s.begin(c)
	case wantKeyOrEnd:
		return c == '}' && s.leave() || c == '"' && s.beginText(true)
	case wantKey:
		return c == '"' && s.beginText(true)
	case wantColon:
		s.state = wantValue
		return c == ':'
	case wantNext:
		return s.next(c)
	}
	return false
}

// begin takes the first byte of a value.
func (s *Stream) begin(c byte) bool {
	switch {
	case c == '{':
		return s.enter(OpenObject, wantKeyOrEnd)
	case c == '[':
		return s.enter(OpenList, wantValueOrEnd)
	case c == '"':
		return s.beginText(false)
	case c == '-':
		return s.beginNumber(c, inSign)
	case c == '0':
		return s.beginNumber(c, inZero)
	case digit(c):
		return s.beginNumber(c, inDigits)
	case c == 't':
		s.state, s.rest = inWord, "true"[1:]
	case c == 'f':
		s.state, s.rest = inWord, "false"[1:]
	case c == 'n':
		s.state, s.rest = inWord, "null"[1:]
	default:
		return false
	}
	return true
}

var tooDeep = fmt.Sprintf("more than %d objects and lists stand in each other", maxDepth)

func (s *Stream) beginText(key bool) bool {
	s.state, s.key, s.long = inText, key, false
	s.text = append(s.text[:0], '"')
	return true
}

// next takes what may follow a value in an object or a list.
func (s *Stream) next(c byte) bool {
	object := s.inObject()
	switch {
	case c == ',' && object:
		s.state = wantKey
	case c == ',':
		s.state = wantValue
	case c == '}' && object, c == ']' && !object:
		return s.leave()
	default:
		return false
	}
	return true
}

// enter begins an object or a list.
func (s *Stream) enter(kind Kind, next state) bool {
	if s.depth == maxDepth {
		return s.fail(s.column, tooDeep)
	}
	bit := byte(1) << (s.depth % 8)
	if s.depth/8 == len(s.objects) {
		s.objects = append(s.objects, 0)
	}
	s.objects[s.depth/8] &^= bit
	if kind == OpenObject {
		s.objects[s.depth/8] |= bit
	}
	s.depth++
	s.state = next
	s.visit(Token{Kind: kind})
	return true
}

// leave ends the innermost object or list.
func (s *Stream) leave() bool {
	kind := CloseList
	if s.inObject() {
		kind = CloseObject
	}
	s.depth--
	s.visit(Token{Kind: kind})
	s.after()
	return true
}

func (s *Stream) inObject() bool {
	return s.objects[(s.depth-1)/8]&(1<<((s.depth-1)%8)) != 0
}

// after is what comes after a value.
func (s *Stream) after() {
	s.state = wantNext
	if s.depth == 0 {
		s.state = wantNothing
	}
}
