// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"cmp"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxMatch limits the text in the pattern of a step, in bytes.
const maxMatch = 200

// httpMocks returns the mocks of HTTP requests. The first one that fits answers, so narrow targets come first.
func (c *caseWriter) httpMocks() (mocks []any) {
	var requests []string
	byRequest := map[string]object{}
	for _, e := range c.observer.exchanges {
		request, mock := e.method+" "+e.target, c.httpMock(e)
		if known, found := byRequest[request]; found {
			if !equalJSON(known, mock) {
				c.addNote("%s had several responses; its mock has the first", request)
			}
			continue
		}
		requests, byRequest[request] = append(requests, request), mock
	}
	slices.SortStableFunc(requests, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, "?"), strings.Count(a, "?")), cmp.Compare(len(b), len(a)))
	})
	for _, request := range requests {
		mocks = append(mocks, byRequest[request])
	}
	return mocks
}

// httpMock returns the mock of a request.
func (c *caseWriter) httpMock(e exchange) object {
	mock := object{{"request", e.method + " " + e.target}}
	if e.status != http.StatusOK {
		mock = append(mock, field{"status", e.status})
	}
	plain := "text/plain"
	switch {
	case e.isJSON:
		mock, plain = append(mock, field{"json", e.body}), "application/json"
	case e.body != "":
		mock = append(mock, field{"text", e.body})
	}
	if e.isCut {
		c.addNote("the response to %s %s was cut, because it is too large for a file", e.method, e.target)
	}
	headers := map[string]string{}
	for name, values := range e.header {
		value := strings.Join(values, ", ")
		switch name {
		case "Content-Type":
			if mediaType, _, err := mime.ParseMediaType(value); err == nil && mediaType != plain {
				headers[name] = value
			}
		case "Location", "Retry-After":
			headers[name] = value
		default:
			if c.usesHeader(name) {
				headers[name] = value
			}
		}
	}
	if len(headers) > 0 {
		mock = append(mock, field{"headers", headers})
	}
	return mock
}

// usesHeader reports whether a tool or script of the repository names a header of responses.
func (c *caseWriter) usesHeader(name string) bool {
	if name == "Set-Cookie" || name == "Date" || name == "Content-Length" {
		return false
	}
	for file, content := range c.opts.Project.Files {
		sends := strings.HasSuffix(file, ".star") || strings.HasPrefix(file, "tools/") || strings.HasPrefix(file, "apis/")
		if sends && strings.Contains(string(content), strings.ToLower(name)) {
			return true
		}
	}
	return false
}

// modelMocks returns the answers of models as scripts, by the names of the models. Scripted models of the repository need no mock.
func (c *caseWriter) modelMocks() map[string]any {
	byModel := map[string][]modelAnswer{}
	for _, a := range c.observer.answers {
		if strings.HasPrefix(a.reference, bundle.ScriptedPrefix) {
			continue
		}
		list := byModel[a.reference]
		at := slices.IndexFunc(list, func(b modelAnswer) bool {
			return a.turn == b.turn && a.agent == b.agent && a.conversation == b.conversation
		})
		switch {
		case at < 0:
			list = append(list, a)
		case list[at].answer == nil: // A request that was repeated.
			list[at] = a
		}
		byModel[a.reference] = list
	}
	mocks := map[string]any{}
	for reference, answers := range byModel {
		mocks[reference] = object{{"steps", c.scriptSteps(answers)}}
	}
	return mocks
}

// scriptSteps returns answers as steps of a script. Answers of the same turn to several agents have patterns.
func (c *caseWriter) scriptSteps(answers []modelAnswer) (steps []any) {
	var last []any
	for _, a := range answers {
		step := object{{"turn", a.turn}}
		var others []string
		for _, b := range answers {
			if b.turn == a.turn && b.conversation != a.conversation {
				others = append(others, b.conversation)
			}
		}
		line, isOwn := ownLine(a.conversation, others)
		if isOwn {
			step = append(step, field{"match", regexp.QuoteMeta(c.observer.mask.redactText(line))})
		}
		step = append(step, c.stepAnswer(a)...)
		if len(others) > 0 && !isOwn {
			last = append(last, step)
			continue
		}
		steps = append(steps, step)
	}
	if len(last) > 1 {
		c.addNote("requests of several agents to the same model cannot be told apart; give the agents models of their own")
	}
	return append(steps, last...)
}

// ownLine returns a line of a conversation that no other conversation has.
func ownLine(conversation string, others []string) (line string, found bool) {
	if len(others) == 0 {
		return "", false
	}
	for line := range strings.SplitSeq(conversation, "\n") {
		line = strings.ToValidUTF8(line[:min(len(line), maxMatch)], "")
		if line != "" && !slices.ContainsFunc(others, func(other string) bool { return strings.Contains(other, line) }) {
			return line, true
		}
	}
	return "", false
}

// stepAnswer returns the keys of a step that gives an answer or an error.
func (c *caseWriter) stepAnswer(a modelAnswer) (out object) {
	if a.answer == nil {
		status, message := statusOf(a.failure), a.failure.Message
		if parts := statusMessage.FindStringSubmatch(message); parts != nil {
			message = parts[2]
			status, _ = strconv.Atoi(parts[1]) // three digits
		}
		return object{{"error", object{{"status", status}, {"message", message}}}}
	}
	text := a.answer.Content.Text()
	if text != "" {
		out = append(out, field{"text", escapeTemplate(text)})
	}
	var calls []any
	if a.answer.Content != nil {
		for _, call := range a.answer.Content.Calls() {
			one := object{{"name", call.Name}}
			if len(call.Args) > 0 {
				one = append(one, field{"arguments", escapeValue(call.Args)})
			}
			calls = append(calls, one)
		}
	}
	switch {
	case len(calls) > 0:
		out = append(out, field{"tool_calls", calls})
	case text == "":
		c.addNote("a model gave an empty answer, which no script can give")
		out = append(out, field{"text", " "})
	}
	if reason := a.answer.FinishReason; reason == model.FinishLength || reason == model.FinishContentFilter {
		out = append(out, field{"finish_reason", string(reason)})
	}
	if usage := a.answer.Usage; usage != nil {
		out = append(out, field{"tokens", reportedTokens(*usage)})
	}
	return out
}

// reportedTokens returns the usage of an answer as a script reports it.
func reportedTokens(u dispatchapi.TokenUsage) (out object) {
	for _, one := range []field{
		{"input", u.InputTokens}, {"output", u.OutputTokens}, {"thinking", u.ThinkingTokens}, {"cached_input", u.CachedInputTokens},
	} {
		if one.value != int64(0) {
			out = append(out, one)
		}
	}
	if len(out) == 0 {
		return object{{"input", 0}}
	}
	return out
}

// statusMessage matches the message of an error that has the status of the service.
var statusMessage = regexp.MustCompile(`^the model answered ([45][0-9]{2}): (.*)$`)

// statusOf returns the HTTP status that gives the code of an error.
func statusOf(failure *model.Error) int {
	switch failure.Code {
	case runerror.ModelUnauthorized:
		return http.StatusUnauthorized
	case runerror.ModelRateLimited:
		return http.StatusTooManyRequests
	case runerror.ModelUnavailable, runerror.ModelTimeout:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// escapeTemplate returns a text as a template that expands to it.
func escapeTemplate(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// escapeValue escapes the texts of a JSON value.
func escapeValue(value any) any {
	switch v := value.(type) {
	case string:
		return escapeTemplate(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = escapeValue(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			out[name] = escapeValue(v[name])
		}
		return out
	}
	return value
}
