// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	notUTF8      = "the text is not UTF-8"
	halfPair     = "an escape is half of a surrogate pair, which is not a character"
	numberTooBig = "the number is too large"
)

// maxPlain is the largest number of characters such that every number without an exponent is finite
// as float64.
const maxPlain = 308

var numberTooLong = fmt.Sprintf("the number has more than %d characters", MaxNumber)

// inString checks a byte of a string.
func (s *Stream) inString(c byte) bool {
	s.keepKeyByte(c)
	switch s.state {
	case inEscape:
		return s.checkEscape(c)
	case inCode:
		return s.checkHexDigit(c)
	}
	switch {
	case s.high && c != '\\':
		return s.recordProblem(s.start, halfPair)
	case c >= utf8.RuneSelf || len(s.partial) > 0:
		return s.character(c)
	case c == '"':
		s.endText()
	case c == '\\':
		s.state = inEscape
	case c < ' ':
		return false
	}
	return true
}

// character checks a byte of a multi-byte character.
func (s *Stream) character(c byte) bool {
	s.partial = append(s.partial, c)
	if !utf8.FullRune(s.partial) {
		return true
	}
	r, size := utf8.DecodeRune(s.partial)
	s.partial = s.partial[:0]
	if r == utf8.RuneError && size == 1 {
		return s.recordProblem(s.column, notUTF8)
	}
	return true
}

// keepKeyByte stores a byte of a key up to the limit.
func (s *Stream) keepKeyByte(c byte) {
	switch {
	case !s.key || s.long:
	case len(s.text) == maxKey:
		s.long = true
	default:
		s.text = append(s.text, c)
	}
}

// checkEscape checks the byte after a backslash.
func (s *Stream) checkEscape(c byte) bool {
	if s.high && c != 'u' {
		return s.recordProblem(s.start, halfPair)
	}
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.state = inText
	case 'u':
		s.state, s.codes, s.code = inCode, 4, 0
	default:
		return false
	}
	return true
}

// checkHexDigit checks a digit of \u.
func (s *Stream) checkHexDigit(c byte) bool {
	if !hexadecimal(c) {
		return false
	}
	s.code = s.code<<4 | digitValue(c)
	if s.codes--; s.codes > 0 {
		return true
	}
	s.state = inText
	low := s.code >= 0xdc00 && utf16.IsSurrogate(s.code)
	switch {
	case s.high != low:
		if !s.high {
			s.start = s.column - len(`\u000`)
		}
		return s.recordProblem(s.start, halfPair)
	case low:
		s.high = false
	case utf16.IsSurrogate(s.code):
		s.high, s.start = true, s.column-len(`\u000`)
	}
	return true
}

func (s *Stream) endText() {
	if !s.key {
		s.visit(Token{Kind: Scalar})
		s.setStateAfterValue()
		return
	}
	key := Token{Kind: Key}
	if !s.long {
		key.Text = s.text
	}
	s.visit(key)
	s.state = wantColon
}

// checkLiteral checks a byte of true, false or null.
func (s *Stream) checkLiteral(c byte) bool {
	if c != s.rest[0] {
		return false
	}
	if s.rest = s.rest[1:]; s.rest == "" {
		s.visit(Token{Kind: Scalar})
		s.setStateAfterValue()
	}
	return true
}

func (s *Stream) beginNumber(c byte, next state) bool {
	s.state, s.start = next, s.column
	s.text = append(s.text[:0], c)
	return true
}

// keepDigit stores a byte of a number up to the limit.
func (s *Stream) keepDigit(c byte) bool {
	if len(s.text) == MaxNumber {
		return s.recordProblem(s.start, numberTooLong)
	}
	s.text = append(s.text, c)
	return true
}

// endNumber ends a number. Any number of digits after the point is allowed. A number that is too
// small for float64 counts as zero.
func (s *Stream) endNumber() bool {
	if s.state == inExponentDigits || len(s.text) > maxPlain {
		if f, _ := strconv.ParseFloat(string(s.text), 64); math.IsInf(f, 0) {
			return s.recordProblem(s.start, numberTooBig)
		}
	}
	s.visit(Token{Kind: Scalar})
	return true
}

// inNumber returns the state after a byte of a number, or false if the byte is not part of it.
func (s *Stream) inNumber(c byte) (next state, ok bool) {
	switch s.state {
	case inSign:
		if c == '0' {
			return inZero, true
		}
		return inDigits, isDigit(c)
	case inPoint:
		return inFraction, isDigit(c)
	case inExponent:
		if c == '+' || c == '-' {
			return inExponentSign, true
		}
		return inExponentDigits, isDigit(c)
	case inExponentSign:
		return inExponentDigits, isDigit(c)
	}
	switch {
	case isDigit(c):
		return s.state, s.state != inZero
	case c == '.':
		return inPoint, s.state == inZero || s.state == inDigits
	default:
		return inExponent, (c == 'e' || c == 'E') && s.state != inExponentDigits
	}
}

// isCompleteNumber reports whether a number may end here.
func (s *Stream) isCompleteNumber() bool {
	switch s.state {
	case inZero, inDigits, inFraction, inExponentDigits:
		return true
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digitValue(c byte) rune {
	if isDigit(c) {
		return rune(c - '0')
	}
	return rune(c|0x20) - 'a' + 10
}

func hexadecimal(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
