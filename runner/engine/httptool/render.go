// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// maxRequest limits the texts of a request together, in bytes, because a short template can use a
// long value many times.
const maxRequest = 1 << 20

// standIn is the value of a missing or sensitive variable if mocks answer, and StandInURL the base URL.
const (
	standIn    = "mock"
	StandInURL = "https://mock.invalid"
)

// renderer fills the templates of a tool with arguments and variables.
type renderer struct {
	tool      *bundle.HTTPTool
	args      map[string]any
	variables runnerconfig.Variables
	hidden    *redact.Secrets
	mocked    bool
	size      int
}

// pair is a query parameter or a field of a form.
type pair struct{ name, value string }

// buildRequest returns the request of the call.
func (r *renderer) buildRequest() (*request, error) {
	address, err := r.buildURL()
	if err != nil {
		return nil, err
	}
	out := &request{method: r.tool.Method, url: address, header: http.Header{}, isRead: r.tool.IsRead()}
	if err := r.addHeaders(out.header); err != nil {
		return nil, err
	}
	switch {
	case r.tool.Body != nil:
		value, present, err := r.bodyValue(r.tool.Body)
		if err != nil || !present {
			return out, err
		}
		if out.body, err = encodeJSON(value); err != nil {
			return nil, err
		}
		setDefault(out.header, "Content-Type", "application/json")
	case r.tool.Form != nil:
		pairs, err := r.renderPairs(r.tool.Form)
		if err != nil {
			return nil, err
		}
		out.body = []byte(encodePairs(pairs))
		setDefault(out.header, "Content-Type", "application/x-www-form-urlencoded")
	}
	return out, nil
}

func setDefault(header http.Header, name, value string) {
	if header.Get(name) == "" {
		header.Set(name, value)
	}
}

// buildURL returns the base URL with the path and the query of the call.
func (r *renderer) buildURL() (*url.URL, error) {
	text, _, err := r.renderText(r.tool.BaseURL)
	if err != nil {
		return nil, err
	}
	if problem := bundle.CheckBaseURL(text); problem != "" {
		if !r.mocked {
			return nil, fmt.Errorf("the base_url of the tool %s; correct the variable of the environment", problem)
		}
		text = StandInURL
	}
	base, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the base_url of the tool is not a URL") // not err, which contains it
	}
	path, err := r.buildPath()
	if err != nil {
		return nil, err
	}
	pairs, err := r.renderPairs(r.tool.Query)
	if err != nil {
		return nil, err
	}
	raw := strings.TrimSuffix(base.EscapedPath(), "/") + path
	out := &url.URL{Scheme: base.Scheme, Host: base.Host, RawPath: raw, RawQuery: base.RawQuery}
	if out.Path, err = url.PathUnescape(raw); err != nil {
		return nil, errors.New("the path of the request is not valid")
	}
	if query := encodePairs(pairs); query != "" {
		out.RawQuery = strings.TrimPrefix(out.RawQuery+"&"+query, "&")
	}
	return out, nil
}

// buildPath returns the escaped path. No value can add a segment or lead to another one.
func (r *renderer) buildPath() (string, error) {
	var out strings.Builder
	for _, part := range r.tool.Path {
		switch {
		case part.Variable != "":
			value, err := r.findVariable(part.Variable)
			if err != nil {
				return "", err
			}
			out.WriteString(url.PathEscape(value))
		case part.Argument != "":
			value, err := r.pathValue(part.Argument)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
		default:
			out.WriteString(part.Text)
		}
	}
	for segment := range strings.SplitSeq(out.String(), "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return "", errors.New("the arguments make a segment . or .. of the path; use other values")
		}
	}
	return out.String(), r.growBy(out.Len())
}

// pathValue returns the escaped value of an argument in the path. Lists and objects have the style
// "simple" of OpenAPI.
func (r *renderer) pathValue(name string) (string, error) {
	value, present := r.findArgument(name)
	var parts []string
	for _, one := range flattenValue(value) {
		// Some servers decode %2F before they resolve dots.
		isDots := func(s string) bool { return s == "." || s == ".." }
		if slices.ContainsFunc(strings.FieldsFunc(one, func(c rune) bool { return c == '/' || c == '\\' }), isDots) {
			return "", fmt.Errorf("%s: must not contain a part . or .., because it is part of the path", name)
		}
		parts = append(parts, url.PathEscape(one))
	}
	joined := strings.Join(parts, ",")
	if !present || joined == "" {
		return "", fmt.Errorf("%s: must not be empty, because it is part of the path", name)
	}
	return joined, nil
}

// addHeaders adds the headers of the call.
func (r *renderer) addHeaders(header http.Header) error {
	for _, field := range r.tool.Headers {
		text, present, err := r.renderText(field.Value)
		if err != nil {
			return err
		}
		if !present {
			continue
		}
		text = strings.TrimSpace(text)
		if !httpguts.ValidHeaderFieldValue(text) {
			return fmt.Errorf("%sthe value of the header %s has a line break or another control character", r.argumentsOf(field.Value), field.Name)
		}
		header.Set(field.Name, text)
	}
	if r.tool.BasicAuth != nil {
		user, _, err := r.renderText(r.tool.BasicAuth[0])
		if err != nil {
			return err
		}
		password, _, err := r.renderText(r.tool.BasicAuth[1])
		if err != nil {
			return err
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		r.hidden.Add(encoded)
		header.Set("Authorization", "Basic "+encoded)
	}
	setDefault(header, "Accept", "application/json, */*;q=0.5")
	setDefault(header, "User-Agent", "agentplatform")
	return nil
}

// argumentsOf returns the names of a template's arguments as the start of an error.
func (r *renderer) argumentsOf(t bundle.Template) string {
	if names := t.Arguments(); len(names) > 0 {
		return strings.Join(names, ", ") + ": "
	}
	return ""
}

// renderPairs returns the query parameters or the fields of a form. It leaves out those with a missing
// argument.
func (r *renderer) renderPairs(fields []bundle.HTTPField) (out []pair, err error) {
	for _, field := range fields {
		if name := field.Value.OnlyArgument(); name != "" {
			if value, present := r.findArgument(name); present {
				for _, p := range stylePairs(field, value) {
					out = append(out, p)
					if err := r.growBy(len(p.name) + len(p.value)); err != nil {
						return nil, err
					}
				}
			}
			continue
		}
		text, present, err := r.renderText(field.Value)
		if err != nil {
			return nil, err
		}
		if present {
			out = append(out, pair{field.Name, text})
		}
	}
	return out, nil
}

// stylePairs returns the pairs of a value in the style of its field.
func stylePairs(field bundle.HTTPField, value any) (out []pair) {
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case isObject && field.Style == bundle.StyleDeepObject:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			out = append(out, pair{field.Name + "[" + key + "]", textOf(object[key])})
		}
	case isObject && field.Style == bundle.StyleExploded:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			out = append(out, pair{key, textOf(object[key])})
		}
	case isList && field.Style == bundle.StyleExploded:
		for _, item := range list {
			out = append(out, pair{field.Name, textOf(item)})
		}
	default:
		separator := map[bundle.FieldStyle]string{bundle.StyleSpaces: " ", bundle.StylePipes: "|"}[field.Style]
		if separator == "" {
			separator = ","
		}
		out = append(out, pair{field.Name, strings.Join(flattenValue(value), separator)})
	}
	return out
}

func encodePairs(pairs []pair) string {
	parts := make([]string, len(pairs))
	for i, p := range pairs {
		parts[i] = url.QueryEscape(p.name) + "=" + url.QueryEscape(p.value)
	}
	return strings.Join(parts, "&")
}

// bodyValue returns a value of the body. It is absent if an argument is missing.
func (r *renderer) bodyValue(template any) (value any, present bool, err error) {
	switch t := template.(type) {
	case bundle.Template:
		if name := t.OnlyArgument(); name != "" {
			value, present = r.args[name] // a null is a value here
			if present {
				if text, err := encodeJSON(value); err != nil || r.growBy(len(text)) != nil {
					return nil, false, errTooLarge
				}
			}
			return value, present, nil
		}
		return r.textValue(t)
	case map[string]any:
		out := make(map[string]any, len(t))
		for name, inner := range t {
			value, present, err := r.bodyValue(inner)
			if err != nil {
				return nil, false, err
			}
			if present {
				out[name] = value
			}
		}
		return out, true, nil
	case []any:
		out := make([]any, 0, len(t))
		for _, inner := range t {
			value, present, err := r.bodyValue(inner)
			if err != nil {
				return nil, false, err
			}
			if present {
				out = append(out, value)
			}
		}
		return out, true, nil
	}
	return template, true, nil
}

func (r *renderer) textValue(t bundle.Template) (any, bool, error) {
	text, present, err := r.renderText(t)
	return text, present, err
}

// renderText returns a text with its values. It is absent if an argument is missing.
func (r *renderer) renderText(t bundle.Template) (text string, present bool, err error) {
	var out strings.Builder
	for _, part := range t {
		piece := part.Text
		switch {
		case part.Variable != "":
			if piece, err = r.findVariable(part.Variable); err != nil {
				return "", false, err
			}
		case part.Argument != "":
			value, present := r.findArgument(part.Argument)
			if !present {
				return "", false, nil
			}
			piece = strings.Join(flattenValue(value), ",")
		}
		if err := r.growBy(len(piece)); err != nil {
			return "", false, err
		}
		out.WriteString(piece)
	}
	return out.String(), true, nil
}

// findArgument returns the value of an argument. A null is like a missing argument.
func (r *renderer) findArgument(name string) (value any, present bool) {
	value = r.args[name]
	return value, value != nil
}

// findVariable returns the value of a variable without surrounding white space, because a Secret from a
// file often ends with a line break.
func (r *renderer) findVariable(name string) (string, error) {
	found, has := r.variables.Find(name)
	switch {
	case r.mocked && (!has || found.Sensitive):
		return standIn, nil
	case !has:
		return "", fmt.Errorf("the environment has no variable %q, which the tool needs", name)
	case found.Sensitive:
		r.hidden.Add(found.Value)
	}
	return strings.TrimSpace(found.Value), nil
}

var errTooLarge = fmt.Errorf("the request would have more than %d bytes; use shorter arguments", maxRequest)

func (r *renderer) growBy(by int) error {
	if r.size += by; r.size > maxRequest {
		return errTooLarge
	}
	return nil
}

// flattenValue returns a value as texts: the items of a list, the keys and values of an object, or one text.
func flattenValue(value any) []string {
	switch v := value.(type) {
	case []any:
		out := make([]string, len(v))
		for i, item := range v {
			out[i] = textOf(item)
		}
		return out
	case map[string]any:
		var out []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out = append(out, key, textOf(v[key]))
		}
		return out
	}
	return []string{textOf(value)}
}

// textOf returns a value as text: a text unchanged, a number with its digits, anything else as JSON.
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return string(v)
	}
	text, err := encodeJSON(value)
	if err != nil {
		return "" // impossible: arguments are JSON
	}
	return string(text)
}

// encodeJSON returns a value as compact JSON without escapes for HTML.
func encodeJSON(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, errors.New("the body of the request cannot be written as JSON")
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
