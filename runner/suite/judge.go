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
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// maxShown limits the actual value in a finding, in bytes.
const maxShown = 2 << 10

// run contains the actions of a run for the judge.
type run struct {
	expr.Ended
	code  string // code of the error
	calls []engine.CallRecord
}

// judgeRun returns the differences between a run and its case.
func (t *trial) judgeRun(ctx context.Context, r run) (findings []Finding) {
	if f := t.judgeResult(ctx, r); f != nil {
		findings = append(findings, *f)
	}
	for i, call := range t.ExpectedToolCalls {
		found := 0
		for _, made := range r.calls {
			if made.Tool == bundle.ModelToolName(call.Tool) && contains(made.Arguments, journalForm(call.Arguments)) {
				found++
			}
		}
		if call.Times == 0 && found > 0 || call.Times > 0 && found == call.Times {
			continue
		}
		findings = append(findings, Finding{At: t.At("expected_tool_calls"), Expected: expectedCall(i, call), Got: shownCalls(r.calls)})
	}
	for _, tool := range t.ExpectedNoToolCalls {
		if slices.ContainsFunc(r.calls, func(made engine.CallRecord) bool { return made.Tool == bundle.ModelToolName(tool) }) {
			findings = append(findings, Finding{At: t.At("expected_no_tool_calls"), Expected: fmt.Sprintf("no call of tool %q", tool), Got: shownCalls(r.calls)})
		}
	}
	return findings
}

// judgeResult judges the outcome of a run. A run that did not complete passes only if the
// expression uses status or error, because a condition on an empty output is no success.
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
		return &Finding{At: t.At("expected_result"), Expected: t.ExpectedResult, Got: fmt.Sprintf("%s, which cannot be evaluated: %v", shownEnd(r), err)}
	case !holds:
		return &Finding{At: t.At("expected_result"), Expected: t.ExpectedResult, Got: shownEnd(r)}
	}
	return nil
}

// journalForm converts a value to the form in the journal.
func journalForm(value map[string]any) map[string]any {
	data, err := json.Marshal(value)
	if err != nil {
		return value // Impossible: the value comes from YAML.
	}
	var out map[string]any
	if exactjson.Decode(data, &out) != nil {
		return value
	}
	return out
}

// Contains reports whether the arguments of a call have all expected ones.
func Contains(got, want map[string]any) bool { return contains(journalForm(got), journalForm(want)) }

// contains reports whether a value has all expected parts. Maps can have other keys at any depth;
// lists must have equal length.
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
		return isList && slices.EqualFunc(have, want, contains)
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

// shownCalls describes the calls of a run for people.
func shownCalls(calls []engine.CallRecord) string {
	if len(calls) == 0 {
		return "no call of any tool"
	}
	shown := make([]string, len(calls))
	for i, c := range calls {
		shown[i] = c.Tool + " " + shownJSON(c.Arguments)
	}
	return truncateText("calls of "+strings.Join(shown, ", "), maxShown)
}

// shownEnd describes the outcome of a run for people.
func shownEnd(r run) string {
	if r.Status != string(engine.Completed) {
		reason := r.Error
		if r.code != "" {
			reason = r.code + ": " + reason
		}
		return truncateText(fmt.Sprintf("status %q, %s", r.Status, reason), maxShown)
	}
	return truncateText(fmt.Sprintf("status %q, output %q", r.Status, r.Output[:min(len(r.Output), maxShown)]), maxShown)
}

func shownJSON(value map[string]any) string {
	data, err := json.Marshal(value)
	if err != nil || value == nil {
		return "{}"
	}
	return truncateText(string(data), maxShown/2)
}

// truncateText shortens text to at most most bytes, with a mark.
func truncateText(text string, most int) string { return excerpt.Of(text, most, " … (cut)") }
