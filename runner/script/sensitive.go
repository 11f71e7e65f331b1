// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// errSensitive is the error of every use of a sensitive text but the allowed ones.
var errSensitive = errors.New("a sensitive variable can only be joined with texts and passed to headers of requests, hmac.sha256 and base64.encode")

// Text is a text in the arguments of a request of a script. It may contain sensitive variables, whose text the script does
// not have. In JSON it is a string, or {"sensitive": [part, …]}.
type Text struct{ parts []textPart }

// textPart is one of: a text, the name of a variable, or parts in base64.
type textPart struct {
	Text     string     `json:"text,omitempty"`
	Variable string     `json:"variable,omitempty"`
	Base64   []textPart `json:"base64,omitempty"`
	// URL is true for base64 in the URL-safe alphabet without padding.
	URL bool `json:"url,omitempty"`
}

// sensitiveJSON is a Text with variables.
type sensitiveJSON struct {
	Sensitive []textPart `json:"sensitive"`
}

// UnmarshalJSON decodes either form.
func (t *Text) UnmarshalJSON(text []byte) error {
	var plain string
	if err := exactjson.Decode(text, &plain); err == nil {
		t.parts = []textPart{{Text: plain}}
		return nil
	}
	var form sensitiveJSON
	if err := exactjson.Decode(text, &form); err != nil || form.Sensitive == nil {
		return errors.New("is not a text")
	}
	t.parts = form.Sensitive
	return nil
}

// secrets returns the values of the variables in the text, and their encoded forms.
func (t Text) secrets(variable func(name string) (string, bool)) []string {
	return secretsOf(t.parts, variable)
}

func secretsOf(parts []textPart, variable func(name string) (string, bool)) (secrets []string) {
	for _, p := range parts {
		switch {
		case p.Variable != "":
			if value, known := variable(p.Variable); known {
				secrets = append(secrets, value)
			}
		case p.Base64 != nil:
			secrets = append(secrets, secretsOf(p.Base64, variable)...)
			if inner, err := resolveParts(p.Base64, variable); err == nil {
				secrets = append(secrets, base64Encoding(p.URL).EncodeToString([]byte(inner)))
			}
		}
	}
	return secrets
}

// resolve returns the text with the values of its variables.
func (t Text) resolve(variable func(name string) (string, bool)) (string, error) {
	return resolveParts(t.parts, variable)
}

func resolveParts(parts []textPart, variable func(name string) (string, bool)) (string, error) {
	var text strings.Builder
	for _, p := range parts {
		value := p.Text
		switch {
		case p.Variable != "":
			known := false
			if value, known = variable(p.Variable); !known {
				return "", fmt.Errorf("the environment has no variable %s", p.Variable)
			}
		case p.Base64 != nil:
			inner, err := resolveParts(p.Base64, variable)
			if err != nil {
				return "", err
			}
			value = base64Encoding(p.URL).EncodeToString([]byte(inner))
		}
		text.WriteString(value)
	}
	return text.String(), nil
}

// base64Encoding returns the standard encoding, or the URL-safe one without padding.
func base64Encoding(url bool) *base64.Encoding {
	if url {
		return base64.RawURLEncoding
	}
	return base64.StdEncoding
}

// sensitiveText is a Text in a script.
type sensitiveText struct {
	parts []textPart
	// call knows the position if a script uses the text in a way that is not allowed.
	call *call
}

// misuse is the panic of a use of a sensitive text in a place without an error.
type misuse struct{ stack starlark.CallStack }

// String panics, because the interpreter calls it for str, % and format, which cannot fail otherwise.
func (s *sensitiveText) String() string      { panic(misuse{s.call.thread.CallStack()}) }
func (*sensitiveText) Type() string          { return "sensitive" }
func (*sensitiveText) Freeze()               {}
func (*sensitiveText) Truth() starlark.Bool  { return true }
func (*sensitiveText) Hash() (uint32, error) { return 0, errSensitive }

// Binary joins the text with another by +.
func (s *sensitiveText) Binary(op syntax.Token, other starlark.Value, side starlark.Side) (starlark.Value, error) {
	parts, ok := partsOf(other)
	if op != syntax.PLUS || !ok {
		return nil, errSensitive
	}
	if side == starlark.Left {
		return &sensitiveText{append(append([]textPart{}, s.parts...), parts...), s.call}, nil
	}
	return &sensitiveText{append(append([]textPart{}, parts...), s.parts...), s.call}, nil
}

// partsOf returns the parts of a text.
func partsOf(value starlark.Value) ([]textPart, bool) {
	switch v := value.(type) {
	case starlark.String:
		return []textPart{{Text: string(v)}}, true
	case *sensitiveText:
		return v.parts, true
	}
	return nil, false
}

func (e *encoder) sensitiveText(s *sensitiveText) error {
	text, err := json.Marshal(sensitiveJSON{s.parts})
	if err != nil {
		return err
	}
	if len(e.text)+len(text) > e.limit {
		return errTooLarge
	}
	e.text = append(e.text, text...)
	return nil
}
