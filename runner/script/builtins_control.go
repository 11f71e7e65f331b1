// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"github.com/agentplatform/agentplatform/bundle"
)

// logLevels are the levels of log.
var logLevels = []string{"debug", "info", "warn", "error"}

func logLine(c *call, a *arguments) (starlark.Value, error) {
	text, level := a.textArg(0), a.textArg(1)
	switch {
	case a.err != nil:
		return nil, a.err
	case !slices.Contains(logLevels, level):
		return nil, fmt.Errorf("log: the level must be one of %s", strings.Join(logLevels, ", "))
	}
	var fields json.RawMessage
	if len(a.fields) > 0 {
		dict := new(starlark.Dict)
		for _, pair := range a.fields {
			_ = dict.SetKey(pair[0], pair[1]) // It is not frozen.
		}
		encoded, err := encodeValue(dict, maxLogLine)
		switch {
		case err == errTooLarge: //nolint:errorlint // encodeValue returns it unwrapped.
			encoded = []byte(`{"omitted":"the fields are too large"}`)
		case err != nil:
			return nil, fmt.Errorf("log: %w", err)
		}
		fields = encoded
	}
	return starlark.None, c.writeLog(level, text, fields)
}

func printLine(c *call, a *arguments) (starlark.Value, error) {
	var line strings.Builder
	for i, value := range a.rest {
		if i > 0 {
			line.WriteByte(' ')
		}
		if text, ok := starlark.AsString(value); ok {
			line.WriteString(text)
		} else {
			line.WriteString(value.String())
		}
	}
	return starlark.None, c.writeLog("info", line.String(), nil)
}

// failure is the error of fail.
type failure struct{ text string }

func (f *failure) Error() string { return f.text }

func failScript(_ *call, a *arguments) (starlark.Value, error) {
	text := a.textArg(0)
	if a.err != nil {
		return nil, a.err
	}
	return nil, &failure{text}
}

// ending is the error of stop and abort, which end a script before its function returns.
type ending struct {
	stop  *Stop
	abort json.RawMessage
}

func (*ending) Error() string { return "the script has ended" }

func stopRun(c *call, a *arguments) (starlark.Value, error) {
	message, publish := a.textArg(0), a.flagArg(1)
	switch {
	case a.err != nil:
		return nil, a.err
	case len(message) > c.message.Limits.ResultBytes:
		return nil, limitError("the message of stop has more than %d bytes", c.message.Limits.ResultBytes)
	}
	return nil, &ending{stop: &Stop{message, publish}}
}

func abortTool(c *call, a *arguments) (starlark.Value, error) {
	if c.message.Function != bundle.StageBefore {
		return nil, errors.New("abort is for the hook before, because the tool has run; return the result that the model sees")
	}
	result, err := c.encodeResult(a.values[0])
	if err != nil {
		return nil, err
	}
	return nil, &ending{abort: result}
}
