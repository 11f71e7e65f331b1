// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

func completed(run dispatchapi.Run) dispatchapi.CompleteRequest {
	return dispatchapi.CompleteRequest{Token: run.Token, Status: dispatchapi.StatusCompleted, Output: "Hello " + string(run.Input)}
}

func TestWebhook_CheckOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inbound := b.connector("inbound", nil, "hello").ID.String()
	outbound := b.connector("outbound", nil).ID.String()
	crons := b.connector("inbound", hourly).ID.String()
	disabled := b.connector("inbound", func(c *store.Connector) { c.Enabled = false }, "hello").ID.String()
	retired := b.connector("inbound", func(c *store.Connector) { c.Enabled, c.Retired, c.DefinedInCode = false, true, true }, "hello").ID.String()
	open := b.connector("inbound", func(c *store.Connector) { c.Config, c.SecretDigest = []byte(`{"authentication":"none"}`), nil }).ID.String()
	lonely := b.connector("sync", nil).ID.String()
	wrong := func(r *http.Request) { r.Header.Set("X-Service-Secret", "wrong") }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("X-Service-Secret")
			r.Header.Set(name, value)
		}
	}
	large := `{"a":"` + strings.Repeat("x", 16<<20) + `"}`
	exact := `{"a":"` + strings.Repeat("x", 16<<20-8) + `"}`
	for name, c := range map[string]struct {
		id, body string
		edit     func(*http.Request)
		status   int
		code     any
	}{
		"unknown id":                    {uuid.NewString(), "{}", nil, 404, "webhook_not_found"},
		"no id at all":                  {"x", "{}", nil, 404, "webhook_not_found"},
		"cron before the secret":        {crons, "{}", wrong, 400, "not_a_webhook"},
		"outbound before the secret":    {outbound, "{}", wrong, 400, "outbound_only"},
		"wrong secret":                  {inbound, "{}", wrong, 401, "invalid_secret"},
		"no secret":                     {inbound, "{}", header("X-None", ""), 401, "invalid_secret"},
		"wrong secret before disabled":  {disabled, "{}", wrong, 401, "invalid_secret"},
		"disabled":                      {disabled, "{}", nil, 409, "connector_disabled"},
		"wrong secret before retired":   {retired, "{}", wrong, 401, "invalid_secret"},
		"retired, which is not resumed": {retired, "{}", nil, 409, "connector_retired"},
		"retired before the size":       {retired, large, nil, 409, "connector_retired"},
		"disabled before the size":      {disabled, large, nil, 409, "connector_disabled"},
		"too large":                     {inbound, large, nil, 413, "request_too_large"},
		"too large, length unknown":     {inbound, large, func(r *http.Request) { r.ContentLength = -1 }, 413, "request_too_large"},
		"maximum size":                  {inbound, exact, nil, 200, nil},
		"no JSON":                       {inbound, "{", nil, 400, "invalid_json"},
		"no object":                     {inbound, " [1]", nil, 400, "invalid_json"},
		"inline files":                  {inbound, `{"files":[{"name":"a.txt","data":"YQ=="}]}`, nil, 200, nil},
		"files by name":                 {inbound, `{"files":["a.txt",{"name":"b.txt"}]}`, nil, 200, nil},
		"files of another shape":        {inbound, `{"a":{"files":[{"data":"b"}]},"files":{"data":"b"}}`, nil, 200, nil},
		"another type":                  {inbound, "{}", func(r *http.Request) { r.Header.Set("Content-Type", "text/csv") }, 415, "unsupported_media_type"},
		"compressed":                    {inbound, "{}", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, "unsupported_encoding"},
		"secret as bearer":              {inbound, "{}", header("Authorization", "Bearer "+secret), 200, nil},
		"secret in the query":           {inbound + "?secret=" + secret, "{}", header("X-None", ""), 200, nil},
		"no authentication, no agent":   {open, "{}", header("X-None", ""), 200, nil},
		"sync without an agent":         {lonely, "{}", nil, 409, "no_agent"},
		"idempotency key too long":      {inbound, "{}", func(r *http.Request) { r.Header.Set("Idempotency-Key", strings.Repeat("k", 256)) }, 400, "idempotency_key_too_long"},
	} {
		t.Run(name, func(t *testing.T) {
			requireAnswer(t, b.post(b.gateway, c.id, c.body, c.edit), c.status, c.code)
		})
	}
}

// requireAnswer requires a status, and an error code for errors.
func requireAnswer(t *testing.T, got reply, status int, code any) {
	t.Helper()
	require.Equal(t, status, got.status, "%v", got.body)
	require.Equal(t, code, got.body["code"])
	if status >= 400 {
		require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
		require.NotEmpty(t, got.body["detail"])
		require.NotRegexp(t, `kubectl|\bconn\b|spec\.|status\.|namespace|\bpods?\b|store|SQL`, got.body["detail"], "error texts are for outsiders")
	}
}

func TestInbound_ReturnsRunIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello", "welcome")
	got := b.post(b.gateway, c.ID.String(), `{"name":"Ada"}`, nil)
	require.Equal(t, 200, got.status)
	require.Equal(t, "ok", got.body["status"])
	require.EqualValues(t, 2, got.body["dispatched_to"])
	ids := got.body["run_ids"].([]any)
	require.Len(t, ids, 2)
	for _, id := range ids {
		run, err := b.store.Run(t.Context(), store.Key{ProjectID: b.project, ID: uuid.MustParse(id.(string))})
		require.NoError(t, err)
		require.Equal(t, store.RunQueued, run.Status)
	}
}

func TestSync_ReturnsOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("sync", nil, "hello")
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		end := completed(run)
		end.FinishReason = "length"
		return end
	})
	got := b.post(b.gateway, c.ID.String(), `{"name":"Ada"}`, nil)
	require.Equal(t, 200, got.status)
	require.Equal(t, "ok", got.body["status"])
	require.Equal(t, "length", got.body["result"].(map[string]any)["finish_reason"])
	result := got.body["result"].(map[string]any)
	require.Equal(t, `Hello {"name":"Ada"}`, result["output"])
	require.Equal(t, "completed", result["status"])
	require.Equal(t, "hello", result["agent_name"])
	require.Nil(t, result["error"])
}

// lookedAt reports each completed claim.
type lookedAt struct {
	store.Store
	answered chan struct{}
}

func (l lookedAt) Claim(ctx context.Context, c store.Claim) (store.ClaimResult, error) {
	defer func() { l.answered <- struct{}{} }()
	return l.Store.Claim(ctx, c)
}

// TestSync_StartsWithAcceptance: at a runner whose claim waits. It waits shortly after its empty
// result.
func TestSync_StartsWithAcceptance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	st := lookedAt{b.store, make(chan struct{}, 1000)}
	b.gateway = b.serve(st)
	c := b.connector("sync", nil, "hello")
	b.runner(completed)
	for range 100 {
		<-st.answered
		got := b.post(b.gateway, c.ID.String(), `{}`, nil)
		require.Equal(t, 200, got.status)
		require.Equal(t, "Hello {}", got.body["result"].(map[string]any)["output"])
		id := uuid.MustParse(got.body["result"].(map[string]any)["run_id"].(string))
		run, err := b.store.Run(t.Context(), store.Key{ProjectID: b.project, ID: id})
		require.NoError(t, err)
		if run.StartedAt.Equal(run.QueuedAt) {
			return
		}
	}
	require.Fail(t, "each run was queued and claimed")
}

// TestSync_FailedRun: the caller gets the error text and code of the run, as in the REST API.
func TestSync_FailedRun(t *testing.T) {
	t.Parallel()
	const said = "what the platform or the model service said"
	for name, c := range map[string]struct{ code, text, want string }{
		"platform":     {"timeout", said, said},
		"model":        {"model_rejected", said, said},
		"without text": {"timeout", "", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			connector := b.connector("sync", nil, "hello")
			b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
				return dispatchapi.CompleteRequest{
					Token: run.Token, Status: dispatchapi.StatusFailed, ErrorCode: runerror.Code(c.code), Error: c.text,
				}
			})
			got := b.post(b.gateway, connector.ID.String(), `{}`, nil)
			require.Equal(t, 200, got.status)
			require.Equal(t, "failed", got.body["status"])
			result := got.body["result"].(map[string]any)
			require.Equal(t, c.want, result["error"])
			require.Equal(t, c.code, result["error_code"])
		})
	}
}

func TestSync_UnknownAgentFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("sync", nil, "nobody")
	b.runner(completed)
	got := b.post(b.gateway, c.ID.String(), `{}`, nil)
	require.Equal(t, 200, got.status)
	require.Equal(t, "failed", got.body["status"])
	require.NotEmpty(t, got.body["result"].(map[string]any)["error"])
}

func TestSync_TimeoutKeepsRun(t *testing.T) {
	t.Parallel()
	waiting := make(waits, 1)
	b := setupWith(t, func(o *Options) { o.WithTimeout = waiting.withTimeout })
	c := b.connector("sync", func(c *store.Connector) { c.Config = []byte(`{"timeout_seconds":7}`) }, "hello")
	answer := make(chan reply, 1)
	go func() { answer <- b.post(b.gateway, c.ID.String(), `{}`, nil) }()
	begun := <-waiting
	require.Equal(t, 7*time.Second, begun.after)
	begun.end()
	got := <-answer
	require.Equal(t, 504, got.status)
	run, err := b.store.Run(t.Context(), store.Key{ProjectID: b.project, ID: uuid.MustParse(got.body["run_id"].(string))})
	require.NoError(t, err)
	require.Equal(t, store.RunQueued, run.Status)
}

func TestSync_RespondAsync(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("sync", nil, "hello")
	got := b.post(b.gateway, c.ID.String(), `{}`, func(r *http.Request) { r.Header.Set("Prefer", "wait=5, respond-async") })
	require.Equal(t, 202, got.status)
	require.Equal(t, "ok", got.body["status"])
	require.EqualValues(t, 1, got.body["dispatched_to"])
	require.Len(t, got.body["run_ids"], 1)
}

func TestIdempotencyKey_Duplicates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.connector("inbound", nil, "hello").ID.String()
	key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "order-1") }
	first := b.post(b.gateway, id, `{"a":1}`, key)
	require.Equal(t, 200, first.status)
	require.Equal(t, first.body, b.post(b.gateway, id, `{"a":1}`, key).body)
	require.Equal(t, 422, b.post(b.gateway, id, `{"a":2}`, key).status)

	hook := func(r *http.Request) { r.Header.Set("webhook-id", "msg_1") }
	one := b.post(b.gateway, id, `{"a":1}`, hook)
	require.Equal(t, one.body, b.post(b.gateway, id, `{"a":2}`, hook).body, "webhook-id does not compare bodies")
	require.NotEqual(t, first.body, one.body)
}

// TestWebhook_ChangesApplyToNextRequest: each committed change applies to the next request on each
// gateway.
func TestWebhook_ChangesApplyToNextRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gateways := []*Gateway{b.gateway, b.serve(b.store)}
	c := b.connector("inbound", nil, "hello")
	put := func(edit func(*store.Connector)) {
		edit(&c)
		c.Ref.Generation++
		require.NoError(t, b.store.PutConnector(t.Context(), c))
	}
	for i := range 100 {
		put(func(c *store.Connector) { c.Enabled = i%2 == 1 })
		for _, g := range gateways {
			require.Equal(t, map[bool]int{true: 200, false: 409}[c.Enabled], b.post(g, c.ID.String(), `{}`, nil).status, "change %d", i)
		}
	}
	for i := range 100 {
		now := secret + strings.Repeat("x", i+1)
		put(func(c *store.Connector) { c.SecretDigest, c.SecretGracePeriod = secrets.Digest(now), 0 })
		for _, g := range gateways {
			require.Equal(t, 401, b.post(g, c.ID.String(), `{}`, nil).status, "rotation %d", i)
			require.Equal(t, 200, b.post(g, c.ID.String(), `{}`, func(r *http.Request) { r.Header.Set("X-Service-Secret", now) }).status)
		}
	}
	put(func(c *store.Connector) { c.SecretDigest = secrets.Digest(secret) })
	for i := range 20 {
		b.link(c, fmt.Sprint("agent-", i), i)
		for _, g := range gateways {
			require.EqualValues(t, i+2, b.post(g, c.ID.String(), `{}`, nil).body["dispatched_to"])
		}
	}
}

// otherClock is a store with another clock: a secret that has expired by the clock of this process
// is valid there.
type otherClock struct {
	store.Store
	end   time.Time
	valid bool
	asked atomic.Int64
}

func (o *otherClock) Route(ctx context.Context, key store.Key) (store.Route, error) {
	route, err := o.Store.Route(ctx, key)
	o.asked.Add(1)
	if o.valid || o.asked.Load() == 1 {
		route.Connector.Secrets = append(route.Connector.Secrets, store.AcceptedSecret{SHA256: secrets.Digest("old"), NotAfter: &o.end})
	}
	return route, err
}

func (o *otherClock) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	for i := range events {
		if o.valid && events[i].SecretNotAfter != nil && events[i].SecretNotAfter.Equal(o.end) {
			events[i].SecretNotAfter = nil
		}
	}
	return o.Store.Accept(ctx, events)
}

// TestSecret_ExpiresByStoreClock: the database's clock decides, for a gateway that is ten minutes
// ahead, and for one that read the route just before the secret expired.
func TestSecret_ExpiresByStoreClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		valid  bool
		status int
	}{
		"the gateway's clock is ahead":  {valid: true, status: 200},
		"it ended after the route came": {valid: false, status: 401},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			clock := &otherClock{Store: b.store, end: time.Now().Add(-5 * time.Minute), valid: c.valid}
			gateway := b.serve(clock)
			connector := b.connector("inbound", nil, "hello")
			old := func(r *http.Request) { r.Header.Set("X-Service-Secret", "old") }
			require.Equal(t, c.status, b.post(gateway, connector.ID.String(), `{}`, old).status)
			require.Equal(t, 200, b.post(gateway, connector.ID.String(), `{}`, nil).status)
		})
	}
}

// broken is a store whose commits fail, or succeed without a response.
type broken struct {
	store.Store
	accept func(ctx context.Context, events []store.Event) ([]store.Admission, error)
}

func (b broken) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	return b.accept(ctx, events)
}

func TestWebhook_NoSuccessWithoutCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	away := b.serve(broken{b.store, func(context.Context, []store.Event) ([]store.Admission, error) {
		return nil, errors.New("the store is away")
	}})
	unknown := b.serve(broken{b.store, func(ctx context.Context, events []store.Event) ([]store.Admission, error) {
		if _, err := b.store.Accept(ctx, events); err != nil {
			return nil, err
		}
		return nil, errors.New("the answer was lost")
	}})
	for _, g := range []*Gateway{away, unknown} {
		got := b.post(g, c.ID.String(), `{}`, func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") })
		require.Equal(t, 503, got.status)
		require.NotEmpty(t, got.header.Get("Retry-After"))
	}
	again := b.post(b.gateway, c.ID.String(), `{}`, func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") })
	require.Equal(t, 200, again.status)
	_, total, err := b.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Limit: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, total, "the key finds the rows of the request whose response was lost")
}

func TestStop_IsNoSuccess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	entered := make(chan struct{})
	gateway, err := New(Options{
		Store: broken{b.store, func(ctx context.Context, _ []store.Event) ([]store.Admission, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: time.Nanosecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx) }()
	go func() {
		<-entered
		stop()
	}()
	got := b.post(gateway, c.ID.String(), `{}`, nil)
	require.Equal(t, 503, got.status, "a request whose commit outlasts the gateway's grace")
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
}

// TestStop_ReturnsRunID: a caller that waits when the gateway stops gets the ID of the run, and no
// request to retry.
func TestStop_ReturnsRunID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("sync", nil, "hello")
	accepted := make(chan []store.Admission, 1)
	gateway, err := New(Options{
		Store: broken{b.store, func(ctx context.Context, events []store.Event) ([]store.Admission, error) {
			made, err := b.store.Accept(ctx, events)
			accepted <- made
			return made, err
		}},
		PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: time.Nanosecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx) }()
	run := make(chan string, 1)
	go func() {
		run <- (<-accepted)[0].RunIDs[0].String()
		stop()
	}()
	got := b.post(gateway, c.ID.String(), `{}`, nil)
	require.Equal(t, http.StatusGatewayTimeout, got.status)
	require.Empty(t, got.header.Get("Retry-After"), "a retry would start the run twice")
	require.Equal(t, <-run, got.body["run_id"])
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
}

func TestLargeInput_ReachesTheRunner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	body := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	require.Equal(t, 200, b.post(b.gateway, c.ID.String(), body, nil).status)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	resp, err := client.Claim(t.Context(), dispatchapi.ClaimRequest{RunnerID: "r", Limit: 1, WaitSeconds: 5})
	require.NoError(t, err)
	require.Len(t, resp.Runs, 1)
	require.True(t, resp.Runs[0].InputElsewhere)
	input, err := client.Input(t.Context(), resp.Runs[0].ID, 16<<20)
	require.NoError(t, err)
	require.Equal(t, body, string(input))
}

func TestTokens_ReachOwnEnvironmentOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	b.post(b.gateway, c.ID.String(), `{}`, nil)
	other := uuid.New()
	require.NoError(t, b.store.PutEnvironment(t.Context(), store.Environment{
		Ref: ref("Environment", "other", 1), ID: other, ProjectID: b.project, DisplayName: "other", Slug: "other", Kind: "standard",
		ObjectCreatedAt: time.Unix(2, 0),
	}))
	require.NoError(t, b.store.PutToken(t.Context(), store.Token{
		SHA256: secrets.Digest("other"), Kind: store.TokenRunner, ProjectID: b.project, EnvironmentID: other,
	}))
	mine, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	theirs, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: "other"})
	require.NoError(t, err)
	nobody, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: "nobody"})
	require.NoError(t, err)

	_, err = nobody.Claim(t.Context(), dispatchapi.ClaimRequest{Limit: 1})
	require.ErrorIs(t, err, dispatchapi.ErrUnauthorized)
	none, err := theirs.Claim(t.Context(), dispatchapi.ClaimRequest{Limit: 1})
	require.NoError(t, err)
	require.Empty(t, none.Runs)
	got, err := mine.Claim(t.Context(), dispatchapi.ClaimRequest{Limit: 1})
	require.NoError(t, err)
	run := got.Runs[0]
	require.ErrorIs(t, theirs.Complete(t.Context(), run.ID, completed(run)), dispatchapi.ErrRejected)
	_, err = mine.Bundle(t.Context(), run.BundleDigest, 1<<20)
	require.NoError(t, err)
	_, err = theirs.Bundle(t.Context(), run.BundleDigest, 1<<20)
	require.ErrorIs(t, err, dispatchapi.ErrRejected, "it is not deployed in that environment")
	require.ErrorIs(t, mine.ReportBuild(t.Context(), dispatchapi.BuildReport{}), dispatchapi.ErrRejected)
	stale := completed(run)
	stale.Token--
	require.ErrorIs(t, mine.Complete(t.Context(), run.ID, stale), dispatchapi.ErrFenced)
	require.NoError(t, mine.Complete(t.Context(), run.ID, completed(run)))
	require.NoError(t, mine.Complete(t.Context(), run.ID, completed(run)), "a completion whose response was lost is repeated")
}
