// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// result is the result of an action.
type result struct {
	text    string
	skipped bool
	// value is the decoded text for expressions, if isDecoded is true.
	value     any
	isDecoded bool
	// raw is the JSON of a script, nil for other actions.
	raw json.RawMessage
}

// compute evaluates an expression. Its error names the key and never contains data.
func (q *sequence) compute(ctx context.Context, key string, e bundle.Expression) (any, error) {
	values, err := q.valuesFor(e.Value())
	if err == nil {
		var value any
		if value, err = e.Value().Compute(ctx, values); err == nil {
			return value, nil
		}
	}
	return nil, q.expressionFailed(ctx, key, err)
}

// holds evaluates a condition. Its error is that of compute.
func (q *sequence) holds(ctx context.Context, key string, e bundle.Expression) (bool, error) {
	values, err := q.valuesFor(e.Value())
	if err == nil {
		var holds bool
		if holds, err = e.Value().Holds(ctx, values); err == nil {
			return holds, nil
		}
	}
	return false, q.expressionFailed(ctx, key, err)
}

// computeKeys evaluates an expression for each key. The values are as large as one value may be, together.
func (q *sequence) computeKeys(ctx context.Context, key string, expressions map[string]bundle.Expression) (map[string]any, error) {
	out, size := make(map[string]any, len(expressions)), 0
	for _, name := range slices.Sorted(maps.Keys(expressions)) {
		value, err := q.compute(ctx, key+"."+name, expressions[name])
		if err != nil {
			return nil, err
		}
		text, err := outputText(value)
		if err != nil {
			return nil, err
		}
		if size += len(text); size > dispatchapi.MaxOutput {
			return nil, q.expressionFailed(ctx, key, fmt.Errorf("its values have more than %d bytes together", dispatchapi.MaxOutput))
		}
		out[name] = value
	}
	return out, nil
}

// expressionFailed returns the failure of a run whose expression cannot be evaluated, or the end of the context.
func (q *sequence) expressionFailed(ctx context.Context, key string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &failure{code: runerror.ExpressionFailed, message: fmt.Sprintf("%q of agent %q cannot be evaluated: %v", key, q.agent.Name, err)}
}

// valuesFor returns the values of the variables that an expression uses.
func (q *sequence) valuesFor(e *expr.Value) (map[string]any, error) {
	values := map[string]any{}
	for _, use := range e.Uses() {
		var err error
		switch use.Name {
		case bundle.VariableInput:
			values[use.Name], err = decodeText(q.input.Content.Text(), true)
		case bundle.VariableContext:
			values[use.Name], err = encodeValues(q.RunContext())
		case bundle.VariableHeaders:
			headers, _ := q.RunContext()["headers"].(map[string]any)
			values[use.Name], err = encodeValues(headers)
		default:
			values[use.Name], err = q.resultValue(use.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", use.Name, err)
		}
	}
	return values, nil
}

// resultValue returns a result for expressions: null for a skipped step, the value of a JSON object or list, else the text.
func (q *sequence) resultValue(name string) (any, error) {
	r := q.results[name]
	if r.skipped || r.isDecoded {
		return r.value, nil
	}
	var err error
	if r.value, err = decodeText(r.text, false); err != nil {
		return nil, err
	}
	r.isDecoded = true
	q.results[name] = r
	return r.value, nil
}

// encodeValues returns values of the run's context for expressions, which must not change them.
func encodeValues(values map[string]any) (any, error) {
	if values == nil {
		values = map[string]any{}
	}
	return encodeValue(values)
}

// encodeValue returns a copy of a JSON value for expressions.
func encodeValue(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, errors.New("it cannot be written as JSON")
	}
	return expr.Input(text)
}

// decodeText returns a text for expressions: the value if the text is a JSON object or list, or any JSON, else the text.
func decodeText(text string, anyJSON bool) (any, error) {
	trimmed := []byte(strings.TrimSpace(text))
	isStructure := len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[')
	if !isStructure && !anyJSON || !json.Valid(trimmed) {
		return text, nil
	}
	if size := jsonscan.Measure(trimmed); size.Values > dispatchapi.MaxInputValues {
		return nil, fmt.Errorf("it has %d JSON values, at most %d are possible", size.Values, dispatchapi.MaxInputValues)
	}
	value, err := expr.Input(trimmed)
	if err != nil {
		return text, nil //nolint:nilerr // It is not JSON of which programs keep all values.
	}
	return value, nil
}

// outputText returns a computed value as the text of a message: a text as it is, any other value as JSON.
func outputText(value any) (string, error) {
	if text, isText := value.(string); isText {
		return text, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encoding a computed value: %w", err)
	}
	return string(text), nil
}
