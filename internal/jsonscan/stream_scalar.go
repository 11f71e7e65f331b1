// SPDX-License-Identifier: Apache-2.0

package jsonscan

// inString takes a byte of a string.
func (s *Stream) inString(c byte) bool {
	s.keep(c)
	switch s.state {
	case inEscape:
		return s.escape(c)
	case inCode:
		if s.codes--; s.codes == 0 {
			s.state = inText
		}
		return hexadecimal(c)
	}
	switch {
	case c == '"':
		s.endText()
	case c == '\\':
		s.state = inEscape
	case c < ' ':
		return false
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
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.state = inText
	case 'u':
		s.state, s.codes = inCode, 4
	default:
		return false
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

func hexadecimal(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
