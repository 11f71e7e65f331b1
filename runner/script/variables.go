// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// Variable is a variable of the environment.
type Variable struct {
	Value     string
	Sensitive bool
}

// Variables returns a variable by name.
type Variables func(name string) (Variable, bool)

// Handle answers the requests that need only variables: env and hmac.sha256. handled is false for other requests.
func (v Variables) Handle(request Request) (value json.RawMessage, handled bool, err error) {
	switch request.Name {
	case "env":
		value, err = v.answerEnv(request.Args)
	case "hmac.sha256":
		value, err = v.answerHMAC(request.Args)
	default:
		return nil, false, nil
	}
	return value, true, err
}

// answerEnv returns the value of a variable, or true for a sensitive one, whose text the script must not have.
func (v Variables) answerEnv(args json.RawMessage) (json.RawMessage, error) {
	var request struct{ Name string }
	if err := exactjson.Decode(args, &request); err != nil {
		return nil, err
	}
	variable, known := v(request.Name)
	switch {
	case !known:
		return nil, Fail("the environment has no variable %s", request.Name)
	case variable.Sensitive:
		return json.RawMessage("true"), nil
	}
	return json.Marshal(variable.Value)
}

func (v Variables) answerHMAC(args json.RawMessage) (json.RawMessage, error) {
	var request struct {
		Key            Text
		Text, Encoding string
	}
	if err := exactjson.Decode(args, &request); err != nil {
		return nil, err
	}
	key, err := v.Resolve(request.Key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(computeHMAC(key, request.Text, request.Encoding))
}

// Secrets returns the values of the sensitive variables in a text and their encoded forms, none of which may be stored or
// shown.
func (v Variables) Secrets(text Text) []string {
	return text.secrets(func(name string) (string, bool) {
		variable, known := v(name)
		return variable.Value, known
	})
}

// Resolve returns a text with the values of its variables. Its error is a Failure.
func (v Variables) Resolve(text Text) (string, error) {
	resolved, err := text.resolve(func(name string) (string, bool) {
		variable, known := v(name)
		return variable.Value, known
	})
	if err != nil {
		return "", Fail("%v", err)
	}
	return resolved, nil
}
