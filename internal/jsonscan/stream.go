// SPDX-License-Identifier: Apache-2.0

package jsonscan

import "errors"

// ErrInvalid says that a text is not valid JSON.
var ErrInvalid = errors.New("not valid JSON")

const (
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

// Stream checks JSON that comes in pieces and shows its tokens as they end. It
// takes the texts that json.Valid takes, and no memory that grows with them.
type Stream struct {
	visit  func(Token)
	state  state
	failed bool

	depth   int
	objects [(maxDepth + 7) / 8]byte // a bit a depth: whether it is an object, not a list

	key   bool   // the string is a key
	text  []byte // of the key
	long  bool   // the key is too long to be kept
	codes int    // digits of \u that are still to come
	rest  string // of the word
}

// NewStream calls visit with each token. Of keys alone it has the text, which is
// valid during the call; a key that is too long to be kept has none, and is no
// name of ten letters or fewer.
func NewStream(visit func(Token)) *Stream {
	return &Stream{visit: visit, text: make([]byte, 0, maxKey)}
}

// Write takes the next piece; ErrInvalid when no text goes on so.
func (s *Stream) Write(piece []byte) (int, error) {
	for i := 0; i < len(piece) && !s.failed; i++ {
		if s.state == inText && !s.key {
			i += plain(piece[i:])
			if i == len(piece) {
				break
			}
		}
		s.failed = !s.step(piece[i])
	}
	if s.failed {
		return 0, ErrInvalid
	}
	return len(piece), nil
}

// Close says ErrInvalid of a text that has not ended.
func (s *Stream) Close() error {
	if !s.failed && s.number() && s.depth == 0 {
		s.visit(Token{Kind: Scalar})
		s.after()
	}
	if s.failed || s.state != wantNothing {
		return ErrInvalid
	}
	return nil
}

// plain is how many bytes of a string go by without another state.
func plain(text []byte) int {
	for i, c := range text {
		if c == '"' || c == '\\' || c < ' ' {
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
			return true
		}
		if !s.number() {
			return false
		}
		s.visit(Token{Kind: Scalar})
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
		s.state = inSign
	case c == '0':
		s.state = inZero
	case digit(c):
		s.state = inDigits
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
		return false
	}
	bit := byte(1) << (s.depth % 8)
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
