// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// maxShown is the most bytes of what came that a finding shows.
const maxShown = 2 << 10

// run is what a run did, for the judge.
type run struct {
	expr.Ended
	code  string // of the error
	calls []engine.Call
}

// judge finds what is not as the case expects.
func (t *trial) judge(ctx context.Context, r run) (findings []Finding) {
	if f := t.judgeResult(ctx, r); f != nil {
		findings = append(findings, *f)
	}
	for i, call := range t.ExpectedToolCalls {
		found := 0
		for _, made := range r.calls {
			if made.Tool == call.Tool && contains(made.Arguments, plain(call.Arguments)) {
				found++
			}
		}
		if call.Times == 0 && found > 0 || call.Times > 0 && found == call.Times {
			continue
		}
		findings = append(findings, Finding{At: t.At("expected_tool_calls"), Expected: expectedCall(i, call), Got: shownCalls(r.calls)})
	}
	for _, tool := range t.ExpectedNoToolCalls {
		if slices.ContainsFunc(r.calls, func(made engine.Call) bool { return made.Tool == tool }) {
			findings = append(findings, Finding{At: t.At("expected_no_tool_calls"), Expected: fmt.Sprintf("no call of tool %q", tool), Got: shownCalls(r.calls)})
		}
	}
	return findings
}

// judgeResult judges how the run ended. A run that did not complete is as expected only
// where the expression looks at status or error: what is true of an empty output is no
// success.
func (t *trial) judgeResult(ctx context.Context, r run) *Finding {
	completed := r.Status == string(engine.Completed)
	if t.verdict == nil || !completed && !t.verdict.LooksAt("status") && !t.verdict.LooksAt("error") {
		if completed {
			return nil
		}
		return &Finding{At: t.At("expected_result"), Expected: "the run completes", Got: shownEnd(r)}
	}
	holds, err := t.verdict.Holds(ctx, r.Ended)
	switch {
	case err != nil:
		return &Finding{At: t.At("expected_result"), Expected: t.ExpectedResult, Got: fmt.Sprintf("%s, of which it cannot be said: %v", shownEnd(r), err)}
	case !holds:
		return &Finding{At: t.At("expected_result"), Expected: t.ExpectedResult, Got: shownEnd(r)}
	}
	return nil
}

// plain is a value as the journal has it.
func plain(value map[string]any) map[string]any {
	data, err := json.Marshal(value)
	if err != nil {
		return value // Cannot be: it is of YAML.
	}
	var out map[string]any
	if exactjson.Decode(data, &out) != nil {
		return value
	}
	return out
}

// contains says whether a value has all that is expected: of a map a part is enough, also
// inside it; a list has as many items.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, isMap := got.(map[string]any)
		for key, value := range want {
			if own, there := have[key]; !there || !contains(own, value) {
				return false
			}
		}
		return isMap
	case []any:
		have, isList := got.([]any)
		if !isList || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	if number, isNumber := want.(json.Number); isNumber {
		own, alsoNumber := got.(json.Number)
		return alsoNumber && exactjson.EqualNumbers(own, number)
	}
	return reflect.DeepEqual(got, want)
}

func expectedCall(i int, call bundle.ExpectedCall) string {
	times := "at least one call"
	if call.Times > 0 {
		times = fmt.Sprintf("%d calls", call.Times)
	}
	out := fmt.Sprintf("%s of tool %q", times, call.Tool)
	if len(call.Arguments) > 0 {
		out += " with " + shownJSON(call.Arguments)
	}
	return fmt.Sprintf("%s (expected_tool_calls[%d])", out, i)
}

// shownCalls are the calls of a run, for people.
func shownCalls(calls []engine.Call) string {
	if len(calls) == 0 {
		return "no call of any tool"
	}
	shown := make([]string, len(calls))
	for i, c := range calls {
		shown[i] = c.Tool + " " + shownJSON(c.Arguments)
	}
	return cut("calls of "+strings.Join(shown, ", "), maxShown)
}

// shownEnd is how a run ended, for people.
func shownEnd(r run) string {
	if r.Status != string(engine.Completed) {
		reason := r.Error
		if r.code != "" {
			reason = r.code + ": " + reason
		}
		return cut(fmt.Sprintf("status %q, %s", r.Status, reason), maxShown)
	}
	return cut(fmt.Sprintf("status %q, output %q", r.Status, r.Output[:min(len(r.Output), maxShown)]), maxShown)
}

func shownJSON(value map[string]any) string {
	data, err := json.Marshal(value)
	if err != nil || value == nil {
		return "{}"
	}
	return cut(string(data), maxShown/2)
}

// cut shortens text to at most so many bytes and a mark.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " … (cut)"
}
