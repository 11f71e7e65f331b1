// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/httptool"
	"github.com/agentplatform/agentplatform/runner/script"
)

const (
	// maxSleep is the longest sleep of a script.
	maxSleep = time.Minute
	// maxRetries limits the repetitions of a request, maxTimeout its time.
	maxRetries = 3
	maxTimeout = 10 * time.Minute
)

// host answers the requests of one call of a script. Everything that could be another value in a later attempt is an
// effect, so that the script sees the recorded value.
type host struct {
	*feature
	scope   *engine.Scope
	effects *engine.Effects
	// idempotent is true if the tool vouches for its writes.
	idempotent bool
}

// Handle implements script.Host.
func (h *host) Handle(ctx context.Context, r script.Request) (json.RawMessage, error) {
	var args map[string]any
	if err := exactjson.Decode(r.Args, &args); err != nil {
		return nil, fmt.Errorf("reading the request of a script: %w", err)
	}
	effect := engine.Effect{Name: r.Name, Arguments: args, Read: !r.Write}
	switch r.Name {
	case script.FileData, "files.list", "files.text", "files.json":
		return h.answerFiles(ctx, r)
	case bundle.SendConnector:
		return h.sendConnector(ctx, args)
	case "env", "hmac.sha256":
		effect.Run = func(context.Context, string) (map[string]any, error) { return h.askVariables(r) }
	case "sleep":
		effect.Run = func(ctx context.Context, _ string) (map[string]any, error) { return nil, pauseScript(ctx, r.Args) }
	case "http.request":
		request, err := readRequest(r.Args)
		if err != nil {
			return nil, err
		}
		effect.Idempotent = h.idempotent || request.IdempotencyKey != nil
		effect.Run = func(ctx context.Context, key string) (map[string]any, error) { return h.sendRequest(ctx, request, key) }
	case "http.save":
		request, err := readSave(r.Args)
		if err != nil {
			return nil, err
		}
		effect.Save = func(ctx context.Context) (engine.NewFile, error) { return h.saveFile(ctx, request) }
	default:
		return nil, script.Fail("%s is not supported by this release", r.Name)
	}
	result, err := h.effects.Do(ctx, effect)
	if r.Name == "http.request" {
		result.Value = maps.Clone(result.Value) // The journal keeps the other one.
		addJSON(result.Value)
		return answerOf(result, err)
	}
	if err != nil || result.Error != "" || effect.Save != nil {
		return answerOf(result, err)
	}
	return json.Marshal(result.Value["value"])
}

// answerOf returns the result of an effect as the script sees it.
func answerOf(result engine.Result, err error) (json.RawMessage, error) {
	switch {
	case err != nil:
		return nil, err
	case result.Error != "":
		return nil, script.Fail("%s", result.Error)
	}
	return json.Marshal(result.Value)
}

// variables returns the variables of the environment. Its error is one for the script.
func (h *host) variables() (script.Variables, error) {
	var known runnerconfig.Variables
	if h.cfg.Variables != nil {
		var err error
		if known, err = h.cfg.Variables(); err != nil {
			return nil, errors.New("the variables of the environment could not be read")
		}
	}
	return func(name string) (script.Variable, bool) {
		v, ok := known.Find(name)
		if h.cfg.Mocked && (!ok || v.Sensitive) {
			return script.Variable{Value: httptool.StandInURL, Sensitive: v.Sensitive}, true
		}
		return script.Variable{Value: v.Value, Sensitive: v.Sensitive}, ok
	}, nil
}

func (h *host) askVariables(r script.Request) (map[string]any, error) {
	variables, err := h.variables()
	if err != nil {
		return nil, err
	}
	text, _, err := variables.Handle(r)
	if err != nil {
		return nil, err
	}
	var value any
	if err := exactjson.Decode(text, &value); err != nil {
		return nil, fmt.Errorf("reading a variable: %w", err)
	}
	return map[string]any{"value": value}, nil
}

func pauseScript(ctx context.Context, args json.RawMessage) error {
	var request struct{ Seconds json.Number }
	if err := exactjson.Decode(args, &request); err != nil {
		return errors.New("seconds must be a number")
	}
	seconds, err := request.Seconds.Float64()
	if err != nil || !(seconds >= 0 && seconds <= maxSleep.Seconds()) {
		return fmt.Errorf("seconds must be between 0 and %.0f", maxSleep.Seconds())
	}
	return pause.For(ctx, time.Duration(seconds*float64(time.Second)))
}

// httpRequest are the arguments of http.request.
type httpRequest struct {
	Method, URL    string
	Headers        map[string]script.Text
	Params         map[string]any
	JSON           json.RawMessage
	Form           map[string]any
	Body           *string
	Timeout        json.Number
	Retry          int
	IdempotencyKey *string `json:"idempotency_key"`
	Fail           bool
}

// readRequest reads and checks the arguments of a request. Its error is one for the script.
func readRequest(args json.RawMessage) (*httpRequest, error) {
	r := &httpRequest{}
	if err := exactjson.Decode(args, r); err != nil {
		return nil, script.Fail("an argument of the request has a wrong type")
	}
	if string(r.JSON) == "null" {
		r.JSON = nil
	}
	bodies := 0
	for _, has := range []bool{r.JSON != nil, r.Form != nil, r.Body != nil} {
		if has {
			bodies++
		}
	}
	seconds, err := r.Timeout.Float64()
	switch {
	case bodies > 1:
		return nil, script.Fail("at most one of json, form and body can be sent")
	case r.Retry < 0 || r.Retry > maxRetries:
		return nil, script.Fail("retry must be between 0 and %d", maxRetries)
	case err != nil || !(seconds > 0 && seconds <= maxTimeout.Seconds()):
		return nil, script.Fail("timeout must be above 0 and at most %.0f seconds", maxTimeout.Seconds())
	}
	return r, nil
}

// sendRequest sends a request and returns the response as the script sees it.
func (h *host) sendRequest(ctx context.Context, r *httpRequest, key string) (map[string]any, error) {
	variables, err := h.variables()
	if err != nil {
		return nil, err
	}
	out := httptool.Request{Method: strings.ToUpper(r.Method), Retries: r.Retry, Key: key}
	seconds, _ := r.Timeout.Float64() // checked before
	out.Timeout = time.Duration(math.Ceil(seconds * float64(time.Second)))
	if err := addHeaders(&out, r.Headers, variables); err != nil {
		return nil, err
	}
	if r.IdempotencyKey != nil {
		out.Key, out.HasOwnKey = *r.IdempotencyKey, true
	}
	if out.URL, err = withParams(r.URL, r.Params); err != nil {
		return nil, err
	}
	if err := r.addBody(&out); err != nil {
		return nil, err
	}
	response, err := h.cfg.HTTP.Send(ctx, out)
	if err != nil {
		return nil, err
	}
	if r.Fail && response.Status >= http.StatusBadRequest {
		return nil, errors.New(response.Failure())
	}
	recorded := map[string]any{
		"status": response.Status, "headers": response.Headers, "body": response.Body, "truncated": response.Truncated,
	}
	if same := maps.Clone(recorded); response.JSON == nil || !reflect.DeepEqual(addJSON(same), response.JSON) {
		recorded["json"] = response.JSON
	}
	return checkSize(recorded)
}

// addHeaders adds the headers of a script to a request, with the values of its variables.
func addHeaders(out *httptool.Request, headers map[string]script.Text, variables script.Variables) error {
	out.Header = http.Header{}
	for name, text := range headers {
		value, err := variables.Resolve(text)
		if err != nil {
			return err
		}
		out.Secrets = append(out.Secrets, variables.Secrets(text)...)
		out.Header.Set(name, value)
	}
	return nil
}

// addJSON adds the value of a JSON body to a response that was recorded without it, and returns it. The journal has the body
// once.
func addJSON(response map[string]any) any {
	body, isText := response["body"].(string)
	if _, has := response["json"]; has || !isText {
		return nil
	}
	var value any
	if err := exactjson.Decode([]byte(body), &value); err != nil {
		return nil
	}
	response["json"] = value
	return value
}

// checkSize returns an error for a response that the journal would cut: the script must see the same in each attempt.
func checkSize(response map[string]any) (map[string]any, error) {
	text, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encoding the response: %w", err)
	}
	if len(text) > script.MaxResponse {
		return nil, fmt.Errorf("the response has %d bytes as JSON text, at most %d are allowed; request less data", len(text), script.MaxResponse)
	}
	return response, nil
}

func (r *httpRequest) addBody(out *httptool.Request) error {
	contentType := ""
	switch {
	case r.JSON != nil:
		out.Body, contentType = r.JSON, "application/json"
	case r.Form != nil:
		values, err := encodeValues(r.Form)
		if err != nil {
			return err
		}
		out.Body, contentType = []byte(values.Encode()), "application/x-www-form-urlencoded"
	case r.Body != nil:
		out.Body, contentType = []byte(*r.Body), "text/plain; charset=utf-8"
	default:
		return nil
	}
	if out.Header.Get("Content-Type") == "" {
		out.Header.Set("Content-Type", contentType)
	}
	return nil
}

// withParams adds parameters to the query of a URL.
func withParams(text string, params map[string]any) (string, error) {
	if len(params) == 0 {
		return text, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("the URL is invalid")
	}
	values, err := encodeValues(params)
	if err != nil {
		return "", err
	}
	query := u.Query()
	for name, list := range values {
		query[name] = append(query[name], list...)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// encodeValues converts a map of texts, numbers, booleans and lists of them.
func encodeValues(params map[string]any) (url.Values, error) {
	values := url.Values{}
	for name, value := range params {
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, one := range list {
			switch v := one.(type) {
			case string:
				values.Add(name, v)
			case json.Number, bool:
				values.Add(name, fmt.Sprint(v))
			case nil:
			default:
				return nil, fmt.Errorf("%s: values are texts, numbers, booleans or lists of them", name)
			}
		}
	}
	return values, nil
}

// sendConnector sends the value under the key payload.
func (h *host) sendConnector(ctx context.Context, args map[string]any) (json.RawMessage, error) {
	name, isText := args["action_name"].(string)
	if !isText {
		return nil, script.Fail("action_name must be a text, the name of a connector")
	}
	envelope, _ := args["payload"].(map[string]any)
	payload, has := envelope["payload"]
	if !has || len(envelope) > 1 {
		return nil, script.Fail(`the second argument must be a map with the key payload alone, such as {"payload": {"order": 4711}}`)
	}
	return answerOf(h.effects.SendConnector(ctx, name, payload))
}

// saveTimeout limits the request of http.save.
const saveTimeout = time.Minute

// saveRequest are the arguments of http.save.
type saveRequest struct {
	URL     string
	Headers map[string]script.Text
	Name    string
}

// readSave reads the arguments of http.save. Its error is one for the script.
func readSave(args json.RawMessage) (*saveRequest, error) {
	r := &saveRequest{}
	if err := exactjson.Decode(args, r); err != nil {
		return nil, script.Fail("an argument of the request has a wrong type")
	}
	return r, nil
}

// saveFile requests a file.
func (h *host) saveFile(ctx context.Context, r *saveRequest) (engine.NewFile, error) {
	variables, err := h.variables()
	if err != nil {
		return engine.NewFile{}, err
	}
	out := httptool.Request{URL: r.URL, Timeout: saveTimeout}
	if err := addHeaders(&out, r.Headers, variables); err != nil {
		return engine.NewFile{}, err
	}
	return h.cfg.HTTP.Save(ctx, out, r.Name)
}

// runStep runs a script that is a step of a sequential agent, with the limits of a tool. The step is recorded, so that the
// script does not run again after it ended.
func (f *feature) runStep(ctx context.Context, at *engine.Scope, step engine.StepScript) (json.RawMessage, error) {
	function := at.Project().StepScript(step.Reference)
	if function == nil {
		return nil, engine.NewFailure(runerror.NotSupported, fmt.Sprintf("the deployment has no script %q", step.Reference), nil)
	}
	args := map[string]any{}
	if function.TakesInput {
		args[bundle.StepInputParameter] = step.Input
	}
	if function.TakesSteps {
		args[bundle.StepResultsParameter] = step.Results
	}
	ended, err := f.run(ctx, around{
		scope: at, owner: bundle.OwnerTool, step: step.Owner, file: function.File, function: function.Function, args: args,
		hidesContext: !function.TakesContext, check: func(json.RawMessage) error { return nil },
	})
	return ended.Result, err
}
