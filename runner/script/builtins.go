// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"math"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/agentplatform/agentplatform/bundle"
)

// implementation computes a built-in.
type implementation func(c *call, a *arguments) (starlark.Value, error)

// implementations are the built-ins that are more than a request to the host, by name.
var implementations = map[string]implementation{
	"log": logLine, "print": printLine, "fail": failScript, "stop": stopRun, "abort": abortTool,
	"json.encode": encodeJSON, "json.decode": decodeJSON,
	"re.match": matchPattern, "re.find": findPattern, "re.find_all": findAllPattern, "re.sub": replacePattern, "re.split": splitPattern,
	"base64.encode": encodeBase64, "base64.decode": decodeBase64,
	"url.escape": escapeURL, "url.query": encodeQuery, "url.parse": parseURL,
	"hash.sha256": hashText, "hmac.sha256": signText,
	"math.ceil": computeCeil, "math.floor": computeFloor, "math.round": computeRound, "math.sqrt": ofFloat(math.Sqrt), "math.pow": ofFloats(math.Pow),
	"math.exp": ofFloat(math.Exp), "math.log": ofFloat(math.Log), "math.sin": ofFloat(math.Sin), "math.cos": ofFloat(math.Cos), "math.asin": ofFloat(math.Asin),
	"math.atan2": ofFloats(math.Atan2), "math.radians": ofFloat(toRadians),
	"uuid.new": newUUID, "random.int": randomInt,
	"time.now": currentTime, "time.parse": parseTime, "time.format": formatTime, "time.add": addTime, "time.unix": unixTime,
	"env": variable, "http.request": sendRequest("", 1), "http.save": sendRequest("", 0),
	"http.get": sendRequest("GET", 0), "http.post": sendRequest("POST", 0), "http.put": sendRequest("PUT", 0),
	"http.patch": sendRequest("PATCH", 0), "http.delete": sendRequest("DELETE", 0),
}

// pureAtStart are the built-ins that a script may call outside of functions: the results must be the same for all calls.
func isPure(b *bundle.Builtin) bool {
	switch b.Module() {
	case "json", "re", "base64", "url", "hash", "hmac", "math":
		return true
	}
	return b.Name == "fail"
}

// callKey is the key of the call in a thread.
const callKey = "call"

// callOf returns the call of a thread, nil while a file is loaded.
func callOf(thread *starlark.Thread) *call {
	c, _ := thread.Local(callKey).(*call)
	return c
}

// predeclare returns the names that scripts have in addition to Starlark's own.
func predeclare() (starlark.StringDict, error) {
	names := starlark.StringDict{}
	for _, b := range bundle.Builtins() {
		function, err := newBuiltin(&b)
		if err != nil {
			return nil, fmt.Errorf("built-in %s: %w", b.Name, err)
		}
		module, name, nested := strings.Cut(b.Name, ".")
		if !nested {
			names[b.Name] = function
			continue
		}
		if names[module] == nil {
			names[module] = &starlarkstruct.Module{Name: module, Members: starlark.StringDict{}}
		}
		m, _ := names[module].(*starlarkstruct.Module)
		m.Members[name] = function
	}
	names.Freeze()
	return names, nil
}

func newBuiltin(b *bundle.Builtin) (*starlark.Builtin, error) {
	s, err := parseSignature(b.Name, b.Signature)
	if err != nil {
		return nil, err
	}
	run := implementations[b.Name]
	if run == nil {
		run = askHost
	}
	return starlark.NewBuiltin(b.Name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		c := callOf(thread)
		switch {
		case c == nil && !isPure(b):
			return nil, fmt.Errorf("%s can only be called in a function", b.Name)
		case c != nil && !c.canCall(b):
			return nil, fmt.Errorf("%s cannot be called here: the script belongs to a %s", b.Name, c.message.Owner)
		}
		a, err := s.bindArguments(args, kwargs)
		if err != nil {
			return nil, err
		}
		result, err := run(c, a)
		if err == nil {
			err = a.err
		}
		return result, err
	}), nil
}

// askHost sends the arguments to the host and returns its answer.
func askHost(c *call, a *arguments) (starlark.Value, error) {
	args := new(starlark.Dict)
	for i, name := range a.names {
		if err := args.SetKey(starlark.String(name), a.values[i]); err != nil {
			return nil, err
		}
	}
	text, err := encodeValue(args, MaxInput)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	return c.askParent(a.name, text)
}

// sendRequest returns the implementation of a request. The method is an argument of http.request.
func sendRequest(method string, url int) implementation {
	return func(c *call, a *arguments) (starlark.Value, error) {
		name := a.name
		args := new(starlark.Dict)
		if method != "" {
			name = "http.request"
			_ = args.SetKey(starlark.String("method"), starlark.String(method)) // It is not frozen.
		}
		a.textArg(url)
		headers := -1
		for i, param := range a.names {
			if param == "headers" {
				headers = i
				continue
			}
			_ = args.SetKey(starlark.String(param), a.values[i])
		}
		encoded, err := encodeHeaders(a, headers)
		if err != nil {
			return nil, err
		}
		text, err := encodeValue(args, MaxInput)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		text = append(append(append(text[:len(text)-1], `,"headers":`...), encoded...), '}')
		return c.askParent(name, text)
	}
}

// encodeHeaders encodes the only argument that takes sensitive texts.
func encodeHeaders(a *arguments, i int) ([]byte, error) {
	headers, ok := a.values[i].(*starlark.Dict)
	if !ok {
		a.mismatch(i, "a dict")
		return nil, a.err
	}
	for key, value := range headers.Entries() {
		if _, isText := partsOf(value); !isText {
			return nil, fmt.Errorf("%s: the header %s must be a string, not %s", a.name, key.String(), value.Type())
		}
	}
	e := encoder{limit: MaxInput, sensitive: true}
	if err := e.writeValue(headers, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	return e.text, a.err
}

// variable returns a variable of the environment. Each variable is asked for once in a call.
func variable(c *call, a *arguments) (starlark.Value, error) {
	name := a.textArg(0)
	if a.err != nil {
		return nil, a.err
	}
	if known := c.variables[name]; known != nil {
		return known, nil
	}
	text, err := encodeValue(starlark.String(name), MaxInput)
	if err != nil {
		return nil, err
	}
	answer, err := c.askParent("env", append(append([]byte(`{"name":`), text...), '}'))
	if err != nil {
		return nil, err
	}
	if answer == starlark.True {
		answer = &sensitiveText{[]textPart{{Variable: name}}, c}
	}
	c.variables[name] = answer
	return answer, nil
}
