// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrInvalid means that a text is not JSON that the platform accepts.
var ErrInvalid = errors.New("not valid JSON")

// SyntaxError is the position and the problem of an invalid text. It wraps ErrInvalid.
type SyntaxError struct {
	// Line and Column count from 1, in characters.
	Line, Column int
	// Problem never contains parts of the text.
	Problem string
}

// Error returns the position and the problem.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Unwrap returns ErrInvalid.
func (e *SyntaxError) Unwrap() error { return ErrInvalid }

// Check returns the problem of a text as a *SyntaxError, or nil. It accepts the same texts as a
// Stream.
func Check(text []byte) error {
	s := NewStream(func(Token) {})
	_, _ = s.Write(text) // Close returns the same error
	return s.Close()
}

const (
	// MaxNumber limits the characters of a number.
	MaxNumber = 1000
	// maxDepth limits nested objects and lists, as encoding/json does.
	maxDepth = 10_000
	// maxKey limits the kept bytes of a key, with quotes and escapes. It is enough for any name of
	// ten letters.
	maxKey = 6*10 + 2
)

// state is the state of a Stream.
type state byte

const (
	wantValue      state = iota
	wantValueOrEnd       // after [
	wantKeyOrEnd         // after {
	wantKey              // after a comma in an object
	wantColon
	wantNext    // after a value: a comma, or the end of the object or list
	wantNothing // after the whole text
	inText      // in a string
	inEscape    // after a backslash
	inCode      // in the four digits of \u
	inWord      // in true, false or null
	inSign      // after the minus of a number
	inZero      // after a 0 that begins one
	inDigits
	inPoint    // after the point
	inFraction // in the digits after the point
	inExponent // after e
	inExponentSign
	inExponentDigits
)

// Stream checks JSON that arrives in pieces and reports its tokens, with constant memory. It
// accepts the texts that json.Valid accepts, with two restrictions: strings are UTF-8 without half
// a surrogate pair, and numbers have at most MaxNumber characters and are finite as float64.
type Stream struct {
	visit func(Token)
	state state
	wrong *SyntaxError
	// line and column are the number of lines and characters before the next byte.
	line, column int
	// start is the column of the number, or of the escaped half of a pair.
	start int

	depth   int
	objects []byte // one bit per depth: object or list

	key     bool   // the string is a key
	text    []byte // text of the key or the number
	long    bool   // the key is too long to keep
	codes   int    // remaining digits of \u
	code    rune   // digits so far
	high    bool   // the first half of a surrogate pair was escaped, so the second must follow
	partial []byte // first bytes of a multi-byte character
	rest    string // rest of the word
}

// NewStream returns a stream that calls visit with each token. Only keys have a text, which is
// valid during the call. A key that is too long has no text and is no name of ten letters or fewer.
func NewStream(visit func(Token)) *Stream {
	buffer := make([]byte, 0, maxKey+utf8.UTFMax)
	return &Stream{visit: visit, text: buffer[:0:maxKey], partial: buffer[maxKey:maxKey]}
}

// Reset prepares the stream for another text.
func (s *Stream) Reset() {
	*s = Stream{visit: s.visit, objects: s.objects, text: s.text[:0], partial: s.partial[:0]}
}

// Write checks the next piece. It returns a *SyntaxError if no valid text can continue like this.
func (s *Stream) Write(piece []byte) (int, error) {
	for i := 0; i < len(piece) && s.wrong == nil; i++ {
		if s.state == inText && !s.key && !s.high && len(s.partial) == 0 {
			n := plainLength(piece[i:])
			s.column += n
			if i += n; i == len(piece) {
				break
			}
		}
		if !s.checkByte(piece[i]) {
			s.recordProblem(s.column, "unexpected character")
		}
		s.countColumn(piece[i])
	}
	if s.wrong != nil {
		return 0, s.wrong
	}
	return len(piece), nil
}

// Close returns a *SyntaxError if the text is incomplete or invalid.
func (s *Stream) Close() error {
	if s.wrong == nil && s.isCompleteNumber() && s.depth == 0 && s.endNumber() {
		s.setStateAfterValue()
	}
	if s.wrong == nil && s.state != wantNothing {
		s.recordProblem(s.column, "unexpected end")
	}
	if s.wrong != nil {
		return s.wrong
	}
	return nil
}

// Empty reports whether only white space has arrived.
func (s *Stream) Empty() bool { return s.wrong == nil && s.state == wantValue && s.depth == 0 }

// recordProblem records the first problem and returns false.
func (s *Stream) recordProblem(column int, problem string) bool {
	if s.wrong == nil {
		s.wrong = &SyntaxError{Line: s.line + 1, Column: column + 1, Problem: problem}
	}
	return false
}

// countColumn counts a byte. A multi-byte character counts with its last byte.
func (s *Stream) countColumn(c byte) {
	switch {
	case len(s.partial) > 0:
	case c == '\n':
		s.line, s.column = s.line+1, 0
	default:
		s.column++
	}
}

// plainLength returns the number of single-byte characters of a string that do not change the state.
func plainLength(text []byte) int {
	for i, c := range text {
		if c == '"' || c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(text)
}

// checkByte checks one byte. It returns false if no valid text can continue like this.
func (s *Stream) checkByte(c byte) bool {
	switch s.state {
	case inText, inEscape, inCode:
		return s.inString(c)
	case inWord:
		return s.checkLiteral(c)
	case inSign, inZero, inDigits, inPoint, inFraction, inExponent, inExponentSign, inExponentDigits:
		if next, ok := s.inNumber(c); ok {
			s.state = next
			return s.keepDigit(c)
		}
		if !s.isCompleteNumber() || !s.endNumber() {
			return false
		}
		s.setStateAfterValue() // c follows it
	}
	return s.between(c)
}

// between checks a byte outside strings, words and numbers.
func (s *Stream) between(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n':
		return true
	}
	switch s.state {
	case wantValue:
		return s.beginValue(c)
	case wantValueOrEnd:
		return c == ']' && s.leaveContainer() || c != ']' && s.beginValue(c)
	case wantKeyOrEnd:
		return c == '}' && s.leaveContainer() || c == '"' && s.beginText(true)
	case wantKey:
		return c == '"' && s.beginText(true)
	case wantColon:
		s.state = wantValue
		return c == ':'
	case wantNext:
		return s.afterValue(c)
	}
	return false
}

// beginValue checks the first byte of a value.
func (s *Stream) beginValue(c byte) bool {
	switch {
	case c == '{':
		return s.enterContainer(OpenObject, wantKeyOrEnd)
	case c == '[':
		return s.enterContainer(OpenList, wantValueOrEnd)
	case c == '"':
		return s.beginText(false)
	case c == '-':
		return s.beginNumber(c, inSign)
	case c == '0':
		return s.beginNumber(c, inZero)
	case isDigit(c):
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

var tooDeep = fmt.Sprintf("more than %d objects and lists are nested", maxDepth)

func (s *Stream) beginText(key bool) bool {
	s.state, s.key, s.long = inText, key, false
	s.text = append(s.text[:0], '"')
	return true
}

// afterValue checks a byte after a value in an object or a list.
func (s *Stream) afterValue(c byte) bool {
	object := s.inObject()
	switch {
	case c == ',' && object:
		s.state = wantKey
	case c == ',':
		s.state = wantValue
	case c == '}' && object, c == ']' && !object:
		return s.leaveContainer()
	default:
		return false
	}
	return true
}

// enterContainer begins an object or a list.
func (s *Stream) enterContainer(kind Kind, next state) bool {
	if s.depth == maxDepth {
		return s.recordProblem(s.column, tooDeep)
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

// leaveContainer ends the innermost object or list.
func (s *Stream) leaveContainer() bool {
	kind := CloseList
	if s.inObject() {
		kind = CloseObject
	}
	s.depth--
	s.visit(Token{Kind: kind})
	s.setStateAfterValue()
	return true
}

func (s *Stream) inObject() bool {
	return s.objects[(s.depth-1)/8]&(1<<((s.depth-1)%8)) != 0
}

// setStateAfterValue sets the state after a value.
func (s *Stream) setStateAfterValue() {
	s.state = wantNext
	if s.depth == 0 {
		s.state = wantNothing
	}
}
