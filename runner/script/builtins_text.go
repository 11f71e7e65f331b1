// SPDX-License-Identifier: Apache-2.0

package script

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// maxJSONText limits the result of json.encode. The memory of the child is the real limit.
const maxJSONText = 16 << 20

func encodeJSON(_ *call, a *arguments) (starlark.Value, error) {
	text, err := encodeValue(a.values[0], maxJSONText)
	if err != nil {
		return nil, fmt.Errorf("json.encode: %w", err)
	}
	return starlark.String(text), nil
}

func decodeJSON(_ *call, a *arguments) (starlark.Value, error) {
	text := a.textArg(0)
	if a.err != nil {
		return nil, a.err
	}
	value, err := decodeValue([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("json.decode: %w", err)
	}
	return value, nil
}

// maxPatterns limits the compiled expressions that a child keeps.
const maxPatterns = 100

// patterns are compiled expressions. A child executes one script at a time.
var patterns = map[string]*regexp.Regexp{}

func (a *arguments) pattern(i int) *regexp.Regexp {
	text := a.textArg(i)
	if a.err != nil {
		return nil
	}
	if compiled := patterns[text]; compiled != nil {
		return compiled
	}
	compiled, _, err := pattern.Compile(text)
	if err != nil {
		a.err = fmt.Errorf("%s: the expression is invalid: %w", a.name, err)
		return nil
	}
	if len(patterns) == maxPatterns {
		clear(patterns)
	}
	patterns[text] = compiled
	return compiled
}

// groupsOf returns the texts of a match and its groups.
func groupsOf(text string, match []int) starlark.Value {
	if match == nil {
		return starlark.None
	}
	groups := make([]starlark.Value, len(match)/2)
	for i := range groups {
		groups[i] = starlark.None
		if match[2*i] >= 0 {
			groups[i] = starlark.String(text[match[2*i]:match[2*i+1]])
		}
	}
	return starlark.NewList(groups)
}

func matchPattern(_ *call, a *arguments) (starlark.Value, error) {
	re, text := a.pattern(0), a.textArg(1)
	if a.err != nil {
		return nil, a.err
	}
	// The leftmost match begins at 0 if there is a match at 0.
	match := re.FindStringSubmatchIndex(text)
	if match != nil && match[0] != 0 {
		return starlark.None, nil
	}
	return groupsOf(text, match), nil
}

func findPattern(_ *call, a *arguments) (starlark.Value, error) {
	re, text := a.pattern(0), a.textArg(1)
	if a.err != nil {
		return nil, a.err
	}
	return groupsOf(text, re.FindStringSubmatchIndex(text)), nil
}

func findAllPattern(_ *call, a *arguments) (starlark.Value, error) {
	re, text := a.pattern(0), a.textArg(1)
	if a.err != nil {
		return nil, a.err
	}
	var all []starlark.Value
	for _, match := range re.FindAllStringSubmatchIndex(text, -1) {
		all = append(all, groupsOf(text, match))
	}
	return starlark.NewList(all), nil
}

func replacePattern(_ *call, a *arguments) (starlark.Value, error) {
	re, replacement, text := a.pattern(0), a.textArg(1), a.textArg(2)
	if a.err != nil {
		return nil, a.err
	}
	return starlark.String(re.ReplaceAllString(text, replacement)), nil
}

func splitPattern(_ *call, a *arguments) (starlark.Value, error) {
	re, text := a.pattern(0), a.textArg(1)
	if a.err != nil {
		return nil, a.err
	}
	return textList(re.Split(text, -1)), nil
}

func textList(texts []string) *starlark.List {
	list := make([]starlark.Value, len(texts))
	for i, text := range texts {
		list[i] = starlark.String(text)
	}
	return starlark.NewList(list)
}

func encodeBase64(c *call, a *arguments) (starlark.Value, error) {
	urlSafe := a.flagArg(1)
	if s, ok := a.values[0].(*sensitiveText); ok {
		return &sensitiveText{[]textPart{{Base64: s.parts, URL: urlSafe}}, c}, a.err
	}
	return starlark.String(base64Encoding(urlSafe).EncodeToString([]byte(a.textArg(0)))), a.err
}

func decodeBase64(_ *call, a *arguments) (starlark.Value, error) {
	encoded := strings.TrimRight(a.textArg(0), "=")
	if a.err != nil {
		return nil, a.err
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_").Replace(encoded))
	switch {
	case err != nil:
		return nil, errors.New("base64.decode: the text is no base64")
	case !utf8.Valid(text):
		return nil, errors.New("base64.decode: the result is not UTF-8")
	}
	return starlark.String(text), nil
}

func escapeURL(_ *call, a *arguments) (starlark.Value, error) {
	return starlark.String(url.PathEscape(a.textArg(0))), a.err
}

func encodeQuery(_ *call, a *arguments) (starlark.Value, error) {
	params, ok := a.values[0].(*starlark.Dict)
	if !ok {
		a.mismatch(0, "a dict")
		return nil, a.err
	}
	query := url.Values{}
	for key, value := range params.Entries() {
		name, ok := starlark.AsString(key)
		if !ok {
			return nil, errors.New("url.query: a key is not a string")
		}
		items := []starlark.Value{value}
		if list, ok := value.(*starlark.List); ok {
			items = slices.Collect(list.Elements())
		}
		for _, item := range items {
			text, ok := queryText(item)
			if !ok {
				return nil, fmt.Errorf("url.query: a value of type %s is no text", item.Type())
			}
			query.Add(name, text)
		}
	}
	return starlark.String(query.Encode()), nil
}

// queryText returns a scalar as text, booleans and numbers as in JSON.
func queryText(value starlark.Value) (string, bool) {
	switch v := value.(type) {
	case starlark.String:
		return string(v), true
	case starlark.Bool, starlark.Int, starlark.Float, longNumber:
		text, err := encodeValue(v, maxLogLine)
		return string(text), err == nil
	}
	return "", false
}

func parseURL(_ *call, a *arguments) (starlark.Value, error) {
	text := a.textArg(0)
	if a.err != nil {
		return nil, a.err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("url.parse: the URL is invalid")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("url.parse: the query is invalid")
	}
	query := new(starlark.Dict)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		_ = query.SetKey(starlark.String(name), textList(values[name])) // It is not frozen.
	}
	result := new(starlark.Dict)
	for _, part := range []struct {
		name  string
		value starlark.Value
	}{
		{"scheme", starlark.String(u.Scheme)}, {"host", starlark.String(u.Hostname())}, {"port", starlark.String(u.Port())},
		{"path", starlark.String(u.Path)}, {"query", query}, {"fragment", starlark.String(u.Fragment)},
	} {
		_ = result.SetKey(starlark.String(part.name), part.value) // It is not frozen.
	}
	return result, nil
}

func hashText(_ *call, a *arguments) (starlark.Value, error) {
	sum := sha256.Sum256([]byte(a.textArg(0)))
	return starlark.String(hex.EncodeToString(sum[:])), a.err
}

// signText computes an HMAC. The host computes it if the key is sensitive.
func signText(c *call, a *arguments) (starlark.Value, error) {
	key, ok := partsOf(a.values[0])
	text, encoding := a.textArg(1), a.textArg(2)
	switch {
	case !ok:
		a.mismatch(0, "a string")
		return nil, a.err
	case a.err != nil:
		return nil, a.err
	case encoding != "hex" && encoding != "base64":
		return nil, errors.New("hmac.sha256: the encoding must be hex or base64")
	}
	if s, isSensitive := a.values[0].(*sensitiveText); isSensitive {
		if c == nil {
			return nil, errSensitive
		}
		args := new(starlark.Dict)
		_ = args.SetKey(starlark.String("key"), s) // It is not frozen.
		_ = args.SetKey(starlark.String("text"), starlark.String(text))
		_ = args.SetKey(starlark.String("encoding"), starlark.String(encoding))
		e := encoder{limit: MaxInput, sensitive: true}
		if err := e.writeValue(args, 0); err != nil {
			return nil, fmt.Errorf("hmac.sha256: %w", err)
		}
		return c.askParent(a.name, e.text)
	}
	return starlark.String(computeHMAC(key[0].Text, text, encoding)), nil
}

func computeHMAC(key, text, encoding string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	if encoding == "base64" {
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return hex.EncodeToString(mac.Sum(nil))
}
