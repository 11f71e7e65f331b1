// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/store"
)

// collector is a running OpenTelemetry collector: the program in the folder otelcollector.
type collector struct {
	url string
	// lines has the received traces as OTLP JSON.
	lines *bufio.Scanner
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	program := filepath.Join(t.TempDir(), "otelcollector")
	run(t, nil, "otelcollector", "go", "build", "-o", program, ".")
	process := exec.CommandContext(t.Context(), program)
	in, err := process.StdinPipe() // the collector runs until it ends
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = in.Close() // the process may have ended
		_ = process.Wait()
	})
	c := &collector{lines: bufio.NewScanner(out)}
	c.lines.Buffer(nil, 16<<20)
	require.True(t, c.lines.Scan(), "the collector prints its address")
	c.url = "http://" + c.lines.Text()
	return c
}

// span is a span as OTLP JSON.
type span struct {
	TraceID    string `json:"traceId"`
	SpanID     string `json:"spanId"`
	Parent     string `json:"parentSpanId"`
	Name       string `json:"name"`
	Attributes []struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	} `json:"attributes"`
}

// valueOf returns the value of an attribute; nil without it.
func (s span) valueOf(name string) any {
	for _, a := range s.Attributes {
		if a.Key == name {
			for _, value := range a.Value {
				return value
			}
		}
	}
	return nil
}

// readSpans waits for a batch of traces and returns its spans by name.
func (c *collector) readSpans(t *testing.T) map[string]span {
	t.Helper()
	require.True(t, c.lines.Scan(), "the collector received traces: %v", c.lines.Err())
	var batch struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []span `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	require.NoError(t, json.Unmarshal(c.lines.Bytes(), &batch))
	spans := map[string]span{}
	for _, resource := range batch.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				require.NotContains(t, spans, s.Name)
				spans[s.Name] = s
			}
		}
	}
	return spans
}

// A collector receives the trace of a run that a webhook with a traceparent started.
func TestCollector_ReceivesTraces(t *testing.T) {
	const traceID, callerSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	received := startCollector(t)
	p := startPlatform(t)
	sealed, key, err := p.keys.Seal(secrets.TelemetryField(p.project), []byte(`{"Authorization":"Bearer token"}`))
	require.NoError(t, err)
	ref := objectRef("Project", "project")
	ref.Generation++
	require.NoError(t, p.store.PutProject(t.Context(), store.Project{Ref: ref, ID: p.project, Telemetry: &store.Telemetry{
		Endpoint: received.url, WithContent: true, SamplePercent: 100, SealedHeaders: sealed, SealedKey: key,
	}}))
	c := p.connector("events", nil)
	run(t, nil, "", "curl", "-sSf", "-H", "Content-Type: application/json", "-H", "traceparent: 00-"+traceID+"-"+callerSpan+"-01",
		"-d", `{"order": 42}`, p.webhookURL(c))
	id := p.executeRun()

	spans := received.readSpans(t)
	require.Len(t, spans, 4)
	for name, parent := range map[string]string{
		"run hello": callerSpan, "invoke_agent hello": spans["run hello"].SpanID, "chat gpt-5": spans["invoke_agent hello"].SpanID,
		"execute_tool look": spans["invoke_agent hello"].SpanID,
	} {
		t.Run("parent of "+name, func(t *testing.T) {
			require.Contains(t, spans, name)
			require.Equal(t, parent, spans[name].Parent)
			require.Equal(t, traceID, spans[name].TraceID)
		})
	}
	require.Equal(t, tracecontext.SpanOf(id, "").String(), spans["run hello"].SpanID, "requests of the run name it")
	require.Equal(t, tracecontext.SpanOf(id, "call_1").String(), spans["execute_tool look"].SpanID)
	for name, attributes := range map[string]map[string]any{
		"run hello": {"gen_ai.agent.name": "hello", "agentplatform.environment.id": p.environment.String()},
		"chat gpt-5": {
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
			"gen_ai.usage.input_tokens": "3", "gen_ai.usage.output_tokens": "2",
		},
		"execute_tool look": {"gen_ai.tool.call.id": "call_1", "gen_ai.tool.call.arguments": `{"q":"42"}`, "gen_ai.tool.call.result": `{"found":true}`},
	} {
		t.Run("attributes of "+name, func(t *testing.T) {
			for key, value := range attributes {
				require.Equal(t, value, spans[name].valueOf(key), key)
			}
		})
	}
}

// executeRun executes the next run as a runner, with a model request and a call of a tool. It returns the ID of the run.
func (p *platform) executeRun() string {
	p.t.Helper()
	ctx := p.t.Context()
	runner, err := dispatchapi.NewClient(dispatchapi.Options{URL: p.internalURL, Token: runnerToken})
	require.NoError(p.t, err)
	live, err := p.store.Environment(ctx, store.Key{ProjectID: p.project, ID: p.environment})
	require.NoError(p.t, err)
	claimed, err := runner.Claim(ctx, dispatchapi.ClaimRequest{RunnerID: "one", Digests: []string{live.LiveBundleDigest}, Limit: 1, WaitSeconds: 30})
	require.NoError(p.t, err)
	require.Len(p.t, claimed.Runs, 1)
	r := claimed.Runs[0]
	require.NoError(p.t, runner.Journal(ctx, r.ID, dispatchapi.JournalRequest{Token: r.Token, Entries: dispatchapi.Entries{
		{Sequence: 1, Kind: "model_answer", Data: json.RawMessage(`{"agent":"hello","turn":1,"model":"openai/gpt-5","content":{"role":"model","parts":[{"text":"I look"}]},
			"finish_reason":"tool_calls","usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"at":"2026-01-02T03:04:05Z","ms":100}`)},
		{Sequence: 2, Kind: "tool_started", Data: json.RawMessage(`{"agent":"hello","call_id":"call_1","tool":"look","arguments":{"q":"42"},"at":"2026-01-02T03:04:06Z"}`)},
		{Sequence: 3, Kind: "tool_result", Data: json.RawMessage(`{"call_id":"call_1","tool":"look","result":{"found":true},"at":"2026-01-02T03:04:07Z"}`)},
	}}))
	require.NoError(p.t, runner.Complete(ctx, r.ID, dispatchapi.CompleteRequest{Token: r.Token, Status: dispatchapi.StatusCompleted, Output: "found"}))
	return r.ID.String()
}
