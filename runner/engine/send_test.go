// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// post receives payloads, each position once, like dispatch.
type post struct {
	mutex sync.Mutex
	sent  map[int64]dispatchapi.SendRequest
	asked int
	err   error
	// skipped is the reason for not sending.
	skipped string
}

func (p *post) Send(_ context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.asked++
	if p.err != nil {
		return dispatchapi.SendResponse{}, p.err
	}
	if p.sent == nil {
		p.sent = map[int64]dispatchapi.SendRequest{}
	}
	if before, again := p.sent[req.Position]; again && string(before.Payload) != string(req.Payload) {
		return dispatchapi.SendResponse{}, errors.New("another payload from one position")
	}
	p.sent[req.Position] = req
	resp := dispatchapi.SendResponse{DeliveryID: uuid.NewSHA1(uuid.Nil, []byte{byte(req.Position)}), Status: dispatchapi.SendQueued}
	if p.skipped != "" {
		resp.Status, resp.Reason = dispatchapi.SendSkipped, p.skipped
	}
	return resp, nil
}

// upTo returns the payloads that an attempt may have sent if this number of its entries is kept.
// Each is announced before.
func (p *post) upTo(cut int) *post {
	before := &post{sent: map[int64]dispatchapi.SendRequest{}}
	for position, req := range p.sent {
		if position <= int64(cut) {
			before.sent[position] = req
		}
	}
	return before
}

// teller calls the tool tell with these arguments, as YAML, and returns the result.
func teller(t require.TestingT, calls ...string) *bundle.Project {
	var script strings.Builder
	script.WriteString("steps:\n  - turn: 1\n    tool_calls:\n")
	for _, arguments := range calls {
		script.WriteString("      - {name: tell, arguments: " + arguments + "}\n")
	}
	script.WriteString("  - {match: queued, text: queued}\n  - {match: skipped, text: skipped}\n  - text: refused\n")
	return project(t, "agents/main.yaml", greeter, "models/main.yaml", script.String())
}

// sending is an input for an agent with the tool tell.
func sending(p *bundle.Project, h *house, to *post) engine.Input {
	in := input(p, h)
	in.Actions, in.Outbound = []dispatchapi.Action{{Name: "tell", Connector: "Ops"}}, to
	return in
}

// results returns the tool results in a journal.
func results(t require.TestingT, journal []dispatchapi.JournalEntry) (out []map[string]any) {
	for _, e := range journal {
		var data struct {
			Result map[string]any `json:"result"`
			Error  string         `json:"error"`
		}
		if e.Kind != dispatchapi.JournalToolResult {
			continue
		}
		require.NoError(t, json.Unmarshal(e.Data, &data))
		if data.Error != "" {
			data.Result = map[string]any{"error": data.Error}
		}
		out = append(out, data.Result)
	}
	return out
}

func TestSend_ByTool(t *testing.T) {
	t.Parallel()
	h, to := &house{}, &post{}
	out := h.engine().Execute(t.Context(), sending(teller(t, `{payload: {n: 1, of: [a]}}`), h, to))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, "queued", out.Output)
	require.Equal(t, map[int64]dispatchapi.SendRequest{
		2: {Mode: dispatchapi.SendByTool, Name: "tell", Position: 2, Payload: json.RawMessage(`{"n":1,"of":["a"]}`)},
	}, to.sent, "from where the journal announces it")
	require.Equal(t, []map[string]any{{"delivery_id": uuid.NewSHA1(uuid.Nil, []byte{2}).String(), "status": "queued"}},
		results(t, slices.Concat(h.appended, out.Trailing)))
	tools := h.requests[0].Tools
	require.Equal(t, "tell", tools[len(tools)-1].Name)
	require.Contains(t, tools[len(tools)-1].Description, `"Ops"`)
}

// The model also learns that nothing was sent, and why.
func TestSend_ReturnsResultToModel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call   string
		to     *post
		output string
		says   string
	}{
		"skipped":     {`{payload: 1}`, &post{skipped: "the connector is disabled"}, "skipped", "the connector is disabled"},
		"refused":     {`{payload: 1}`, &post{err: &dispatchapi.RejectedError{Detail: "Not sent: no link."}}, "refused", "Not sent: no link."},
		"no payload":  {`{body: 1}`, &post{}, "refused", "one argument, payload"},
		"more":        {`{payload: 1, url: x}`, &post{}, "refused", "one argument, payload"},
		"null is one": {`{payload: null}`, &post{}, "queued", "queued"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, to := &house{}, c.to
			out := h.engine().Execute(t.Context(), sending(teller(t, c.call), h, to))
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Equal(t, c.output, out.Output)
			require.Contains(t, strings.Join(texts(results(t, slices.Concat(h.appended, out.Trailing))), ""), c.says)
		})
	}
}

func TestSend_RejectsLargePayload(t *testing.T) {
	t.Parallel()
	call := &model.Part{Call: &model.Call{Name: "tell", Args: map[string]any{"payload": strings.Repeat("x", dispatchapi.MaxPayload)}}}
	h, to := &house{says: []*model.Content{{Role: model.RoleModel, Parts: []*model.Part{call}}}}, &post{}
	out := h.engine().Execute(t.Context(), sending(teller(t, `{payload: 1}`), h, to))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Contains(t, strings.Join(texts(results(t, slices.Concat(h.appended, out.Trailing))), ""), "the limit is 262144")
	require.Zero(t, to.asked)
}

// A model's number keeps its digits, so a number that receivers cannot read reaches the tool. The
// model gets an error, and the run continues.
func TestTool_RejectsNumbersThatReceiversCannotRead(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("7", jsonscan.MaxNumber+1)
	for name, row := range map[string]struct {
		call   *model.Call
		result map[string]any // result of the tool huge
		says   string
	}{
		"payload beyond float64": {
			call: &model.Call{Name: "tell", Args: map[string]any{"payload": map[string]any{"n": json.Number("1e400")}}},
			says: "the arguments of the tool cannot be used as JSON: the number is too large",
		},
		"payload of many digits": {
			call: &model.Call{Name: "tell", Args: map[string]any{"payload": json.Number("0." + digits)}},
			says: "the arguments of the tool cannot be used as JSON: the number has more than 1000 characters",
		},
		"arguments of another tool": {
			call: &model.Call{Name: "huge", Args: map[string]any{"n": json.Number("-1e309")}},
			says: "the arguments of the tool cannot be used as JSON: the number is too large",
		},
		"result of a tool": {
			call:   &model.Call{Name: "huge"},
			result: map[string]any{"n": json.Number("1e400")},
			says:   "the result of the tool cannot be used as JSON: the number is too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, to := &house{says: []*model.Content{{Role: model.RoleModel, Parts: []*model.Part{{Call: row.call}}}, says("done")}}, &post{}
			h.huge = func(context.Context, *engine.Call) (map[string]any, error) {
				if row.result == nil {
					t.Error("the tool is called")
				}
				return row.result, nil
			}
			p := project(t, "agents/main.yaml", strings.Replace(greeter, "broken", "huge", 1), "models/main.yaml", "steps: [{text: x}]\n")
			out := h.engine().Execute(t.Context(), sending(p, h, to))
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Equal(t, "done", out.Output)
			got := results(t, slices.Concat(h.appended, out.Trailing))
			require.Len(t, got, 1)
			require.Contains(t, got[0]["error"], row.says)
			require.Zero(t, to.asked)
		})
	}
}

func texts(all []map[string]any) (out []string) {
	for _, one := range all {
		for _, v := range one {
			out = append(out, v.(string))
		}
	}
	return out
}

// A run that is cut anywhere sends the same payloads, and none twice, even if its link was deleted.
func TestSend_ResumesAtItsPosition(t *testing.T) {
	t.Parallel()
	p := teller(t, `{payload: 1}`, `{payload: 2}`)
	first, to := &house{}, &post{}
	whole := first.engine().Execute(t.Context(), sending(p, first, to))
	require.Equal(t, engine.Completed, whole.Status, whole.Cause)
	require.Len(t, to.sent, 2)
	journal := slices.Concat(first.appended, whole.Trailing)
	for cut := range len(journal) + 1 {
		for _, gone := range []bool{false, true} {
			h, to := &house{}, to.upTo(cut)
			in := sending(p, h, to)
			in.Prior = journal[:cut]
			if called := slices.ContainsFunc(in.Prior, func(e dispatchapi.JournalEntry) bool { return e.Kind == dispatchapi.JournalToolStarted }); gone && called {
				in.Actions = nil
			}
			out := h.engine().Execute(t.Context(), in)
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Equal(t, whole.Output, out.Output)
			require.Len(t, results(t, slices.Concat(in.Prior, h.appended, out.Trailing)), 2)
			var payloads []string
			for _, req := range to.sent {
				payloads = append(payloads, string(req.Payload))
			}
			require.ElementsMatch(t, []string{"1", "2"}, payloads, "cut at %d", cut)
		}
	}
}

// Another attempt sends again.
func TestSend_UnknownOutcomeLeavesRunOpen(t *testing.T) {
	t.Parallel()
	h, to := &house{}, &post{err: dispatchapi.ErrFenced}
	out := h.engine().Execute(t.Context(), sending(teller(t, `{payload: 1}`), h, to))
	require.Equal(t, engine.Unfinished, out.Status)
	require.ErrorIs(t, out.Cause, dispatchapi.ErrFenced)
	require.Empty(t, results(t, h.appended))
}

// The model could not distinguish the tools.
func TestSend_DuplicateToolNameFailsRun(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := sending(teller(t, `{payload: 1}`), h, &post{})
	in.Actions = append(in.Actions, dispatchapi.Action{Name: "look", Connector: "Ops"})
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, runerror.ToolNameTaken, out.ErrorCode)
	require.Contains(t, out.Error, `"look"`)
	require.Empty(t, h.asked)
}

// A link to the sequence applies to its agents.
func TestSend_FromEachAgentOfSequence(t *testing.T) {
	t.Parallel()
	script := "steps: [{turn: 1, tool_calls: [{name: tell, arguments: {payload: 1}}]}, {text: done}]"
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nagents: [one, two]\n",
		"agents/one.yaml", "name: one\nmodel: scripted/one\n", "models/one.yaml", script,
		"agents/two.yaml", "name: two\nmodel: scripted/one\n")
	h, to := &house{}, &post{}
	out := h.engine().Execute(t.Context(), sending(p, h, to))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Len(t, to.sent, 2)
}
