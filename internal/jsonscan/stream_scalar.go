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
	halfPair     = "an escape is half of a surrogate pair, which is no character"
	numberTooBig = "the number is too large"
)

// maxPlain is up to how many characters a number without an exponent is finite as float64.
const maxPlain = 308

var numberTooLong = fmt.Sprintf("the number has more than %d characters", MaxNumber)

// inString takes a byte of a string.
func (s *Stream) inString(c byte) bool {
	s.keep(c)
	switch s.state {
	case inEscape:
		return s.escape(c)
	case inCode:
		return s.inCode(c)
	}
	switch {
	case s.high && c != '\\':
		return s.fail(s.start, halfPair)
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

// character takes a byte of a character that has several.
func (s *Stream) character(c byte) bool {
	s.partial = append(s.partial, c)
	if !utf8.FullRune(s.partial) {
		return true
	}
	r, size := utf8.DecodeRune(s.partial)
	s.partial = s.partial[:0]
	if r == utf8.RuneError && size == 1 {
		return s.fail(s.column, notUTF8)
	}
	return true
}

// keep keeps a byte of a key that is not too long.
func (s *Stream) keep(c byte) {
	switch {
	case !s.key || s.long:
	case len(s.text) == maxKey:
		s.long = true
	default:
		s.text = append(s.text, c)
	}
}

// escape takes the byte after a backslash.
func (s *Stream) escape(c byte) bool {
	if s.high && c != 'u' {
		return s.fail(s.start, halfPair)
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

// inCode takes a digit of \u.
func (s *Stream) inCode(c byte) bool {
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
		return s.fail(s.start, halfPair)
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
		s.after()
		return
	}
	key := Token{Kind: Key}
	if !s.long {
		key.Text = s.text
	}
	s.visit(key)
	s.state = wantColon
}

// inWord takes a byte of true, false or null.
func (s *Stream) inWord(c byte) bool {
	if c != s.rest[0] {
		return false
	}
	if s.rest = s.rest[1:]; s.rest == "" {
		s.visit(Token{Kind: Scalar})
		s.after()
	}
	return true
}

func (s *Stream) beginNumber(c byte, next state) bool {
	s.state, s.start = next, s.column
	s.text = append(s.text[:0], c)
	return true
}

// keepDigit keeps a byte of a number that is not too long.
func (s *Stream) keepDigit(c byte) bool {
	if len(s.text) == MaxNumber {
		return s.fail(s.start, numberTooLong)
	}
	s.text = append(s.text, c)
	return true
}

// endNumber ends a number. Digits after the point are kept, however many they are, and a number that
// is too small for float64 is zero there.
func (s *Stream) endNumber() bool {
	if s.state == inExponentDigits || len(s.text) > maxPlain {
		if f, _ := strconv.ParseFloat(string(s.text), 64); math.IsInf(f, 0) {
			return s.fail(s.start, numberTooBig)
		}
	}
	s.visit(Token{Kind: Scalar})
	return true
}

// inNumber is what a number expects after a byte; false when the byte is none of
// its own.
func (s *Stream) inNumber(c byte) (next state, ok bool) {
	switch s.state {
	case inSign:
		if c == '0' {
			return inZero, true
		}
		return inDigits, digit(c)
	case inPoint:
		return inFraction, digit(c)
	case inExponent:
		if c == '+' || c == '-' {
			return inExponentSign, true
		}
		return inExponentDigits, digit(c)
	case inExponentSign:
		return inExponentDigits, digit(c)
	}
	switch {
	case digit(c):
		return s.state, s.state != inZero
	case c == '.':
		return inPoint, s.state == inZero || s.state == inDigits
	default:
		return inExponent, (c == 'e' || c == 'E') && s.state != inExponentDigits
	}
}

// number says whether a number may end here.
func (s *Stream) number() bool {
	switch s.state {
	case inZero, inDigits, inFraction, inExponentDigits:
		return true
	}
	return false
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func digitValue(c byte) rune {
	if digit(c) {
		return rune(c - '0')
	}
	return rune(c|0x20) - 'a' + 10
}

func hexadecimal(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
