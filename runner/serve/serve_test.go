// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/input"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repo has two agents: hello greets by name, charger calls a tool with an effect before it answers.
func repo() bundle.Files {
	return bundle.Files{
		"agents/hello.yaml":   []byte("name: hello\nmodel: scripted/hello\n"),
		"models/hello.yaml":   []byte(`steps: [{match: '"name":"(\w+)"', text: 'Hello ${1}!'}, {text: Hello!}]`),
		"agents/charger.yaml": []byte("name: charger\nmodel: scripted/charger\ntools: [charge]\n"),
		"models/charger.yaml": []byte("steps: [{turn: 1, tool_calls: [{name: charge}]}, {text: charged}]"),
	}
}

// runner is a server under test.
type runner struct {
	stop context.CancelFunc
	done chan error
}

func (r *runner) end(t *testing.T) error {
	t.Helper()
	r.stop()
	return <-r.done
}

// started runs a server with the given function as the tool charge.
func started(t *testing.T, p *port, id string, charge func(context.Context) error, change func(*serve.Options)) *runner {
	t.Helper()
	if charge == nil {
		charge = func(context.Context) error { return nil }
	}
	opts := serve.Options{
		Dispatch: p.as(id), RunnerID: id, Concurrency: 4, Heartbeat: time.Hour,
		Engine: engine.New(engine.Config{Models: &model.Registry{}, Tools: []engine.Tool{{
			Name: "charge", Run: func(ctx context.Context, _ *engine.Call) (map[string]any, error) { return nil, charge(ctx) },
		}}}),
	}
	if change != nil {
		change(&opts)
	}
	server, err := serve.New(opts)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r := &runner{stop: stop, done: make(chan error, 1)}
	go func() { r.done <- server.Run(ctx) }()
	return r
}

func TestServer_ExecutesAndReportsRuns(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	r := started(t, p, "one", nil, nil)
	ada := p.queue("hello", "application/json; charset=utf-8", `{"name": "Ada"}`)
	text := p.queue("hello", "text/plain", "hi")
	large := p.queueElsewhere("hello", `{"name":"Big"}`)
	missing := p.queue("nobody", "application/json", `{}`)
	broken := p.queue("hello", "application/json", `{`)
	require.Equal(t, "Hello Ada!", p.await(t, ada).Output)
	require.Equal(t, "Hello!", p.await(t, text).Output)
	require.Equal(t, "Hello Big!", p.await(t, large).Output)
	require.Equal(t, runerror.AgentNotFound, p.await(t, missing).ErrorCode)
	require.Equal(t, runerror.InputInvalid, p.await(t, broken).ErrorCode)
	require.Equal(t, 1, p.fetched[p.digest])
	require.Empty(t, p.journals[ada], "one turn costs no append")
	require.NoError(t, r.end(t))
}

// The agent sends with the tools of its claim, under the claim's token.
func TestServer_SendsUnderClaim(t *testing.T) {
	t.Parallel()
	files := repo()
	files["models/hello.yaml"] = []byte("steps: [{turn: 1, tool_calls: [{name: tell, arguments: {payload: {n: 1}}}]}, {match: queued, text: told}]")
	p := newPort(t, files)
	id := p.queueRun(dispatchapi.Run{
		AgentName: "hello", ContentType: "application/json", Input: []byte(`{}`), Actions: []dispatchapi.Action{{Name: "tell", Connector: "ops"}},
	})
	r := started(t, p, "one", nil, nil)
	require.Equal(t, "told", p.await(t, id).Output)
	require.NoError(t, r.end(t))
	require.Equal(t, []dispatchapi.SendRequest{{
		Token: p.runs[id].run.Token, Mode: dispatchapi.SendByTool, Name: "tell", Position: 2, Payload: []byte(`{"n":1}`),
	}}, p.sends)
}

func TestDrain_FinishesToolsAndReleasesRuns(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	calling, finish := make(chan struct{}), make(chan struct{})
	one := started(t, p, "one", func(context.Context) error { close(calling); <-finish; return nil }, nil)
	run := p.queue("charger", "application/json", `{}`)
	<-calling
	one.stop()
	close(finish)
	require.NoError(t, <-one.done)
	require.Equal(t, "queued", p.status(run))
	require.Len(t, p.journals[run], 3)

	two := started(t, p, "two", func(context.Context) error { return errors.New("called again") }, nil)
	require.Equal(t, "charged", p.await(t, run).Output)
	require.NoError(t, two.end(t))
}

func TestDrain_CancelsToolsAfterGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		calling := make(chan struct{})
		one := started(t, p, "one", func(ctx context.Context) error { close(calling); <-ctx.Done(); return ctx.Err() },
			func(o *serve.Options) { o.Grace = time.Minute })
		run := p.queue("charger", "application/json", `{}`)
		<-calling
		require.NoError(t, one.end(t))
		require.Equal(t, "queued", p.status(run))

		two := started(t, p, "two", nil, nil)
		require.Equal(t, runerror.ToolInterrupted, p.await(t, run).ErrorCode)
		require.NoError(t, two.end(t))
	})
}

func TestClaim_LostClaimEndsRunSilently(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	calling := make(chan struct{})
	one := started(t, p, "one", func(ctx context.Context) error { close(calling); <-ctx.Done(); return ctx.Err() },
		func(o *serve.Options) { o.Heartbeat = time.Millisecond; o.Concurrency = 1 })
	run := p.queue("charger", "application/json", `{}`)
	<-calling
	p.steal(run)
	p.until(t, func() bool { return p.claims["one"] > 1 }) // its slot is free again
	require.NoError(t, one.end(t))
	require.Equal(t, "running", p.status(run))
	require.Zero(t, p.released)
}

func TestClaim_ToolsWaitForConfirmedLease(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	p.lease = 0 // over at once
	p.away = true
	called := make(chan struct{})
	one := started(t, p, "one", func(context.Context) error { close(called); return nil },
		func(o *serve.Options) { o.Heartbeat = time.Millisecond })
	run := p.queue("charger", "application/json", `{}`)
	p.until(t, func() bool { return p.missed > 2 })
	select {
	case <-called:
		t.Fatal("the tool was called without a confirmed lease")
	default:
	}
	p.set(func() { p.away, p.lease = false, 30 })
	require.Equal(t, "charged", p.await(t, run).Output)
	<-called
	require.NoError(t, one.end(t))
}

func TestBundles_PrefetchAndCache(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	other := p.addBundle(t, bundle.Files{"agents/hello.yaml": []byte("name: hello\nmodel: scripted/x\n"), "models/x.yaml": []byte("steps: [{text: two}]")})
	p.want = []string{other}
	one := started(t, p, "one", nil, func(o *serve.Options) { o.Bundles = 1 })
	p.until(t, func() bool { return fmt.Sprint(p.held["one"]) == fmt.Sprint([]string{other}) })
	p.set(func() { p.digest, p.want = other, nil })
	require.Equal(t, "two", p.await(t, p.queue("hello", "text/plain", "x")).Output)
	require.Equal(t, 1, p.fetched[other])
	require.NoError(t, one.end(t))
}

func TestPrefetch_ContinuesWithoutFreeSlot(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	other := p.addBundle(t, bundle.Files{"agents/a.yaml": []byte("name: a\nmodel: openai/x\n")})
	calling, finish := make(chan struct{}), make(chan struct{})
	one := started(t, p, "one", func(context.Context) error { close(calling); <-finish; return nil },
		func(o *serve.Options) { o.Concurrency = 1 })
	run := p.queue("charger", "text/plain", "x")
	<-calling
	p.set(func() { p.want = []string{other} })
	p.until(t, func() bool { return len(p.held["one"]) == 2 })
	close(finish)
	require.Equal(t, "charged", p.await(t, run).Output)
	require.NoError(t, one.end(t))
}

func TestJournal_RejectionFailsRun(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	p.rejectJournal = true
	one := started(t, p, "one", func(context.Context) error { return errors.New("called") }, nil)
	end := p.await(t, p.queue("charger", "text/plain", "x"))
	require.Equal(t, dispatchapi.StatusFailed, end.Status)
	require.Equal(t, runerror.Internal, end.ErrorCode)
	require.NoError(t, one.end(t))
}

func TestNew_ValidatesOptions(t *testing.T) {
	t.Parallel()
	_, err := serve.New(serve.Options{})
	require.Error(t, err)
}

func TestInput_ReadsPairsAsObject(t *testing.T) {
	t.Parallel()
	message, values, err := input.Read(fields.ContentType, []byte(`[["name","Ada"],["a","1"],["a","2"]]`), false, dispatchapi.Files{})
	require.NoError(t, err)
	require.Equal(t, `{"name":"Ada","a":["1","2"]}`, message)
	require.Equal(t, "Ada", values["name"])
	require.Equal(t, []any{"1", "2"}, values["a"])
}

func FuzzInput(f *testing.F) {
	f.Add("application/json", []byte(`{"a":{"b":1}}`))
	f.Add("application/json;", []byte(`"x"`))
	f.Add("text/plain", []byte{0xff})
	f.Add(fields.ContentType, []byte(`[["a","1"],["a","2"]]`))
	f.Fuzz(func(t *testing.T, contentType string, raw []byte) {
		message, values, err := input.Read(contentType, raw, false, dispatchapi.Files{})
		if err != nil {
			return
		}
		require.Contains(t, values, "input")
		if json.Valid([]byte(message)) {
			return
		}
		require.NotNil(t, values["input"])
	})
}
