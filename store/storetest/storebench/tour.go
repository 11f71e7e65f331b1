// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// over is a period that has ended when it begins.
const over = -time.Second

// tour is the state of Tour.
type tour struct {
	*Scene
	*require.Assertions
	ctx context.Context
	tb  testing.TB
	// connectorRuns were accepted, runs have ended.
	connectorRuns, runs []store.Key
}

// Tour makes a store run every statement that it has for events and runs. It may be repeated. The
// scene needs two links.
func (c *Scene) Tour(tb testing.TB) {
	tb.Helper()
	t := &tour{Scene: c, Assertions: require.New(tb), ctx: tb.Context(), tb: tb}
	t.acceptEvents()
	t.endRuns()
	t.interrupt()
	t.deliver()
	t.readRows()
	t.listAll()
	t.recordAudit()
	t.recordRejections()
	t.requestPoll()
	t.replays()
	t.takeTurns()
	t.deployAgents()
	t.recordTicks()
	t.removeEnvironment()
	t.keepHouse()
}

// requireSuccess checks that a call whose result has no meaning here succeeds.
func (t *tour) requireSuccess(_ any, err error) { t.NoError(err) }

// acceptAll accepts events and returns the results.
func (t *tour) acceptAll(events ...store.Event) []store.Admission {
	admissions, err := t.Store.Accept(t.ctx, events)
	t.NoError(err)
	for _, a := range admissions {
		t.NoError(a.Err)
		if a.Verdict == store.Accepted {
			t.connectorRuns = append(t.connectorRuns, t.key(a.ConnectorRunID))
		}
	}
	return admissions
}

// newEvent returns an event with a change.
func (t *tour) newEvent(change func(e *store.Event)) store.Event {
	e := t.Event(t.tb)
	change(&e)
	return e
}

func (t *tour) acceptEvents() {
	for _, class := range []store.Class{store.ClassSync, store.ClassInbound, store.ClassDeferred} {
		for range 4 {
			t.acceptAll(t.newEvent(func(e *store.Event) { e.Class = class }), t.newEvent(func(e *store.Event) { e.Class = class }))
		}
	}
	blob := uuid.New()
	t.requireSuccess(t.Store.PutBlob(t.ctx, t.key(blob), strings.NewReader("an input")))
	t.acceptAll(t.newEvent(func(e *store.Event) { e.Input, e.InputBlob = nil, &blob }))
	t.acceptAll(
		t.newEvent(func(e *store.Event) { e.Runs = nil }),
		t.newEvent(func(e *store.Event) { e.Runs[0].ErrorCode = "files_required" }),
		t.newEvent(func(e *store.Event) { e.Runs = e.Runs[:1]; e.Runs[0].AgentName = "is-not-deployed" }),
		t.newEvent(func(e *store.Event) { e.ConnectorVersion++ }),
	)
	begun := t.acceptAll(t.newEvent(func(e *store.Event) { e.Runs, e.RunnerID = e.Runs[:1], "a runner that waits" }))[0].Begun
	t.NotNil(begun)
	each, err := t.Store.Complete(t.ctx, []store.Completion{{Lease: leaseOf(*begun), Status: store.RunCompleted}})
	t.NoError(err)
	t.Equal([]error{nil}, each)
	key := "key:" + uuid.NewString()
	keyed := func(e *store.Event) { e.Idempotency = &store.Idempotency{Key: key, TTL: time.Hour} }
	t.acceptAll(t.newEvent(keyed))
	t.Equal(store.Repeated, t.acceptAll(t.newEvent(keyed))[0].Verdict)
	known, err := t.Store.KnownKey(t.ctx, t.key(t.Connector), key)
	t.NoError(err)
	t.True(known)
	t.acceptAll(t.newEvent(func(e *store.Event) {
		e.Idempotency = &store.Idempotency{Key: "over:" + uuid.NewString(), TTL: over}
	}))
}

// claimed returns runs that a runner claims.
func (t *tour) claimed(runner string, limit int, lease time.Duration, holding ...store.Lease) []store.Claimed {
	result, err := t.Store.Claim(t.ctx, store.Claim{
		Environment: t.key(t.Environment), RunnerID: runner, Slots: 50, Limit: limit, Lease: lease, Holding: holding,
	})
	t.NoError(err)
	return result.Runs
}

// claimAsNew claims runs as a new runner.
func (t *tour) claimAsNew(n int, lease time.Duration) []store.Claimed {
	runs := t.claimed(uuid.NewString(), n, lease)
	t.Len(runs, n)
	return runs
}

func leaseOf(c store.Claimed) store.Lease { return store.Lease{Run: c.Run.Key(), Token: c.Token} }

// answers returns entries first to last that a claim appends to the journal.
func answers(c store.Claimed, first, last int64) (out []store.JournalEntry) {
	for i := first; i <= last; i++ {
		out = append(out, store.JournalEntry{
			Sequence: c.JournalLength + i, Kind: store.JournalModelAnswer, Data: json.RawMessage(`{}`), Usage: &store.ModelUsage{Model: "p/m"},
		})
	}
	return out
}

// endRuns ends runs in the most frequent way, and with partly repeated journals.
func (t *tour) endRuns() {
	runner := uuid.NewString()
	runs := t.claimed(runner, 3, time.Hour)
	t.Len(runs, 3)
	t.Len(t.claimed(runner, 0, time.Hour), 3, "handed again")
	environments, err := t.Store.Attend(t.ctx, []store.RunnerKey{{Environment: t.key(t.Environment), ID: runner}})
	t.NoError(err)
	t.Len(environments, 1)
	lost, err := t.Store.Heartbeat(t.ctx, t.key(t.Environment), []store.Held{{Lease: leaseOf(runs[0])}, {Lease: leaseOf(runs[1])}, {Lease: store.Lease{Run: t.key(newID(t.tb))}}}, time.Hour)
	t.NoError(err)
	t.Len(lost, 1)
	t.NoError(t.Store.AppendJournal(t.ctx, leaseOf(runs[0]), answers(runs[0], 1, 2)))
	t.NoError(t.Store.AppendJournal(t.ctx, leaseOf(runs[0]), answers(runs[0], 2, 3)))
	completions := []store.Completion{
		{Lease: leaseOf(runs[0]), Status: store.RunCompleted, Output: "done", Journal: answers(runs[0], 3, 4)},
		{Lease: leaseOf(runs[1]), Status: store.RunFailed, ErrorCode: "model_error", Journal: answers(runs[1], 1, 1)},
	}
	completions[0].Output = strings.Repeat("x", store.MaxInlineText+1)
	completions[1].Journal[0].Data = json.RawMessage(`"` + completions[0].Output + `"`)
	for range 2 {
		each, err := t.Store.Complete(t.ctx, completions)
		t.NoError(err)
		t.Equal([]error{nil, nil}, each)
	}
	t.runs = append(t.runs, runs[0].Run.Key(), runs[1].Run.Key())
	n, err := t.Store.Reclaim(t.ctx, t.key(t.Environment), runner, nil)
	t.NoError(err)
	t.Equal(1, n)
	t.ErrorIs(t.Store.AppendJournal(t.ctx, leaseOf(runs[0]), answers(runs[0], 5, 5)), store.ErrFenced)
}

// interrupt takes runs away from their runners.
func (t *tour) interrupt() {
	runs := t.claimAsNew(6, time.Hour)
	t.NoError(t.Store.Release(t.ctx, leaseOf(runs[0]), time.Minute))
	t.NoError(t.Store.Release(t.ctx, leaseOf(runs[0]), time.Minute))
	t.NoError(t.Store.Suspend(t.ctx, store.Suspension{Lease: leaseOf(runs[1]), For: time.Hour, Journal: answers(runs[1], 1, 1)}))
	t.NoError(t.Store.Resume(t.ctx, runs[1].Run.Key(), json.RawMessage(`"`+strings.Repeat("x", store.MaxInlineText)+`"`)))
	t.NoError(t.Store.Suspend(t.ctx, store.Suspension{Lease: leaseOf(runs[2]), For: over}))
	t.NoError(t.Store.Cancel(t.ctx, runs[3].Run.Key(), runerror.Cancelled, "enough"))
	t.ErrorIs(t.Store.Cancel(t.ctx, runs[3].Run.Key(), runerror.Cancelled, "enough"), store.ErrConflict)
	start := func(c store.Claimed) {
		entry := store.JournalEntry{Sequence: c.JournalLength + 1, Kind: store.JournalToolStarted, Unsafe: true}
		t.NoError(t.Store.AppendJournal(t.ctx, leaseOf(c), []store.JournalEntry{entry}))
	}
	start(runs[4])
	t.NoError(t.Store.Release(t.ctx, leaseOf(runs[4]), 0))
	t.NoError(t.Store.Release(t.ctx, leaseOf(runs[4]), 0))
	start(runs[5])
	t.requireSuccess(t.Store.Heartbeat(t.ctx, t.key(t.Environment), []store.Held{{Lease: leaseOf(runs[5])}}, over))
	t.runs = append(t.runs, runs[3].Run.Key(), runs[4].Run.Key())

	lost := t.claimAsNew(2, over)
	e := t.newEvent(func(e *store.Event) { e.EnvironmentID = uuid.New() })
	t.acceptAll(e)
	swept, err := t.Store.SweepLeases(t.ctx, 100)
	t.NoError(err)
	t.Equal(store.Swept{GivenBack: 2, Failed: 1, Resumed: 1, Cancelled: 2}, swept)
	gone, err := t.Store.Heartbeat(t.ctx, t.key(t.Environment), []store.Held{{Lease: leaseOf(lost[0])}}, time.Hour)
	t.NoError(err)
	t.Empty(gone, "revived")
	t.NoError(t.Store.Release(t.ctx, leaseOf(lost[0]), 0))
}

// readRows reads open and ended rows.
func (t *tour) readRows() {
	open := t.claimAsNew(1, time.Hour)[0]
	for _, run := range append(t.runs, open.Run.Key()) {
		got, err := t.Store.Run(t.ctx, run)
		t.NoError(err)
		_, body, err := t.Store.RunInput(t.ctx, run)
		t.NoError(err)
		t.NoError(body.Close())
		t.requireSuccess(t.Store.RunHeaders(t.ctx, run))
		t.requireSuccess(t.Store.Journal(t.ctx, run))
		t.requireSuccess(t.Store.JournalAfter(t.ctx, run, 1, 1))
		if got.ConnectorRunID != nil {
			t.connectorRuns = append(t.connectorRuns, t.key(*got.ConnectorRunID))
		}
	}
	for _, key := range t.connectorRuns {
		t.requireSuccess(t.Store.ConnectorRun(t.ctx, key))
		t.requireSuccess(t.Store.Outcome(t.ctx, key))
	}
	t.requireSuccess(t.Store.Ended(t.ctx, t.connectorRuns))
	_, err := t.Store.Run(t.ctx, t.key(newID(t.tb)))
	t.ErrorIs(err, store.ErrNotFound)
	each, err := t.Store.Complete(t.ctx, []store.Completion{{Lease: leaseOf(open), Status: store.RunCompleted}})
	t.NoError(err)
	t.Equal([]error{nil}, each)
}

// listAll reads every list with every filter.
func (t *tour) listAll() {
	next := newID(t.tb)
	for _, agent := range []string{"", t.Links[0].AgentName} {
		for _, statuses := range [][]store.RunStatus{
			nil, {store.RunQueued}, {store.RunFailed}, {store.RunCompleted}, {store.RunCancelled, store.RunFailed}, {store.RunFailed, store.RunQueued},
		} {
			for _, environments := range [][]uuid.UUID{nil, {t.Environment}, {t.Environment, uuid.New()}} {
				for _, before := range []*uuid.UUID{nil, &next} {
					_, _, err := t.Store.ListRuns(t.ctx, store.RunQuery{
						ProjectID: t.Project, EnvironmentIDs: environments, AgentName: agent, Statuses: statuses, Before: before, Limit: 20,
					})
					t.NoError(err)
				}
			}
		}
	}
	t.searchRuns(next)
	t.listOfConnector()
	t.requireSuccess(t.Store.Agents(t.ctx, t.key(t.Environment)))
	_, err := t.Store.Agent(t.ctx, t.key(t.Environment), t.Links[0].AgentName)
	t.NoError(err)
	for _, environment := range []uuid.UUID{t.Environment, uuid.New()} {
		t.requireSuccess(t.Store.HasRuns(t.ctx, t.key(environment)))
		t.requireSuccess(t.Store.ConnectorsOf(t.ctx, t.key(environment)))
	}
	for _, of := range []store.StatisticsQuery{{}, {Since: time.Now().AddDate(0, -3, 0), DeploymentID: uuid.New(), TestNames: []string{"b"}}, {
		Since: time.Now().Add(-time.Minute), Until: time.Now(), Statuses: []store.RunStatus{store.RunCompleted}, Outcomes: []string{store.GuardrailBlocked},
	}} {
		of.Environment, of.AgentName = t.key(t.Environment), "agent"
		t.requireSuccess(t.Store.RunStatistics(t.ctx, of))
	}
	t.readCosts()
	t.requireSuccess(t.Store.ConnectorIDs(t.ctx, store.Key{}, 10))
	t.requireSuccess(t.Store.QueueFigures(t.ctx))
	t.requireSuccess(t.Store.Demand(t.ctx, t.key(t.Environment), 100))
	t.NoError(t.Store.DropBlob(t.ctx, t.key(uuid.New())))
	limited := t.project
	limited.Limits.BacklogRuns = 1 << 30 // the backlog is counted only with a limit
	t.NoError(t.Store.PutProject(t.ctx, limited))
	t.requireSuccess(t.Store.ProjectLoad(t.ctx, t.Project))
	t.requireSuccess(t.Store.ExpireRuns(t.ctx, store.MaxOpen, 10))
	t.requireSuccess(t.Store.DropHistory(t.ctx, store.Retention, 10))
	t.requireSuccess(t.Store.OldestHistory(t.ctx))
	t.requireSuccess(t.Store.ExpireDeliveries(t.ctx, store.MaxOpen, 10))
}

// listOfConnector reads every list of a connector's runs.
func (t *tour) listOfConnector() {
	for _, since := range []time.Duration{0, time.Hour} {
		for _, statuses := range [][]store.ConnectorRunStatus{nil, {store.ConnectorRunFailed}, {store.ConnectorRunFailed, store.ConnectorRunPending}, {store.ConnectorRunFailed, store.ConnectorRunRunning}} {
			for _, trigger := range []store.TriggerType{"", store.TriggerCron} {
				for _, offset := range []int{0, 300} {
					_, _, err := t.Store.ListConnectorRuns(t.ctx, store.ConnectorRunQuery{
						Connector: t.key(t.Connector), Since: since, Statuses: statuses, Trigger: trigger, Limit: 20, Offset: offset,
					})
					t.NoError(err)
				}
			}
		}
		t.requireSuccess(t.Store.ConnectorStatistics(t.ctx, store.ConnectorStatisticsQuery{Connector: t.key(t.Connector), Since: time.Now().Add(-since)}))
	}
	for _, run := range append(slices.Clone(t.runs), t.key(newID(t.tb))) {
		_, _, err := t.Store.ListConnectorRuns(t.ctx, store.ConnectorRunQuery{Connector: t.key(t.Connector), Run: run.ID, Since: time.Hour, Limit: 20})
		t.NoError(err)
	}
}

func (t *tour) recordAudit() {
	id, err := t.Store.RecordAudit(t.ctx, store.AuditEntry{
		ProjectID: t.Project, Operation: "createConnector", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "ci"},
	})
	t.NoError(err)
	t.NoError(t.Store.RecordAuditOutcome(t.ctx, t.Project, id, store.AuditOutcome{Status: 201}))
	for _, before := range []*uuid.UUID{nil, &id} {
		t.requireSuccess(t.Store.ListAudit(t.ctx, store.AuditQuery{ProjectID: t.Project, Before: before, Limit: 20}))
	}
}

// replays runs bulk replays.
func (t *tour) replays() {
	now, err := t.Store.Now(t.ctx)
	t.NoError(err)
	n := store.NewReplay{
		Connector: t.key(t.Connector), ID: uuid.New(), PerMinute: 60,
		Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed, store.ConnectorRunSkipped}, Since: now.Add(-time.Hour), Until: now},
	}
	for _, trigger := range []store.TriggerType{store.TriggerWebhook, ""} {
		n.Filter.Trigger = trigger
		t.requireSuccess(t.Store.MatchReplay(t.ctx, n.Connector, n.Filter))
	}
	for _, verdict := range []store.Verdict{store.Accepted, store.Repeated} {
		_, v, err := t.Store.StartReplay(t.ctx, n)
		t.NoError(err)
		t.Equal(verdict, v)
	}
	_, _, err = t.Store.NextReplay(t.ctx)
	t.NoError(err)
	taken, err := t.Store.TakeReplays(t.ctx, 1, time.Minute)
	t.NoError(err)
	t.Len(taken, 1)
	t.requireSuccess(t.Store.ReplayOriginals(t.ctx, taken[0], 10))
	t.NoError(t.Store.MoveReplay(t.ctx, store.ReplayStep{From: taken[0].Position, To: taken[0], Due: now}))
	t.requireSuccess(t.Store.Replay(t.ctx, taken[0].Key()))
	t.requireSuccess(t.Store.ListReplays(t.ctx, n.Connector))
	t.NoError(t.Store.CancelReplay(t.ctx, taken[0].Key()))
}

// requestPoll requests a poll of the project's repository, and takes the request.
func (t *tour) requestPoll() {
	projects := []uuid.UUID{t.Project}
	t.requireSuccess(t.Store.HavePollRequests(t.ctx, projects))
	t.requireSuccess(t.Store.ProjectIDs(t.ctx, uuid.Nil, 10))
	t.NoError(t.Store.RequestPolls(t.ctx, projects))
	t.requireSuccess(t.Store.ListPollRequests(t.ctx, uuid.Nil, 10))
	t.NoError(t.Store.DeletePollRequest(t.ctx, t.Project))
}

// recordRejections records rejected requests and reports them.
func (t *tour) recordRejections() {
	t.NoError(t.Store.RecordRejections(t.ctx, []store.Rejected{{Connector: t.key(t.Connector), Counts: map[string]int64{"invalid_secret": 1}}}))
	t.requireSuccess(t.Store.Rejections(t.ctx, t.key(t.Connector)))
	t.requireSuccess(t.Store.TakeRejectionNews(t.ctx, 10))
}

// deployAgents builds a deployment and makes it live.
func (t *tour) deployAgents() {
	var agents []store.Agent
	for _, link := range t.Links {
		agents = append(agents, store.Agent{Name: link.AgentName, Type: "llm", SourcePath: "agents/hello.yaml"})
	}
	t.buildAndDeploy(t.Environment, agents...)
}

// buildAndDeploy is deployAgents in an environment, with these agents.
func (t *tour) buildAndDeploy(environment uuid.UUID, agents ...store.Agent) {
	before, err := t.Store.Deployment(t.ctx, t.key(t.Deployment))
	t.NoError(err)
	bundle, err := t.Store.OpenBundle(t.ctx, t.Project, before.BundleDigest)
	t.NoError(err)
	_, err = io.Copy(io.Discard, bundle)
	t.NoError(err)
	name := "d-" + uuid.NewString()
	spec := store.DeploymentSpec{
		Ref: t.objectRef(store.KindDeployment, name), ID: uuid.New(), ProjectID: t.Project, EnvironmentID: environment,
		Fingerprint: name, SourceType: "git",
	}
	t.requireSuccess(t.Store.BeginDeployment(t.ctx, spec))
	t.replaceToken(store.Token{Kind: store.TokenBuild, ProjectID: t.Project, EnvironmentID: environment, DeploymentID: &spec.ID})
	t.replaceToken(store.Token{Kind: store.TokenRunner, ProjectID: t.Project, EnvironmentID: environment})
	t.NoError(t.Store.StartBuild(t.ctx, spec.Key(), ""))
	t.NoError(t.Store.ReportBuild(t.ctx, spec.Key(), store.BuildReport{Phase: store.PhaseTesting}))
	t.NoError(t.Store.AppendBuildLog(t.ctx, spec.Key(), 0, "building"))
	t.requireSuccess(t.Store.BuildLogFrom(t.ctx, spec.Key(), 1))
	t.NoError(t.Store.FinishBuild(t.ctx, spec.Key(), store.BuildResult{BundleDigest: before.BundleDigest, Agents: agents,
		Connectors: []store.ConnectorFile{{Key: "orders", Content: "type: cron"}}}))
	files, err := t.Store.ConnectorFiles(t.ctx, spec.Key())
	t.NoError(err)
	t.Len(files, 1)
	t.NoError(t.Store.RecordConnectors(t.ctx, spec.Key(), json.RawMessage(`[]`)))
	t.NoError(t.Store.RequestPrefetch(t.ctx, t.key(environment), before.BundleDigest))
	t.requireSuccess(t.Store.Runners(t.ctx, t.key(environment), time.Hour))
	result, err := t.Store.Activate(t.ctx, store.Activation{Deployment: spec.Key()})
	t.NoError(err)
	t.True(result.Live)
	t.recordDrift(t.key(environment), spec.Key())
}

// recordDrift reports drift of a live deployment until it has ended.
func (t *tour) recordDrift(environment, live store.Key) {
	report := store.DriftReport{DeploymentID: live.ID, Agent: "hello", Server: "crm", Tools: []string{"get"}}
	t.NoError(t.Store.RecordDrift(t.ctx, environment, []store.DriftReport{report}))
	drift, err := t.Store.Drift(t.ctx, live)
	t.NoError(err)
	t.Len(drift, 1)
	found, err := t.Store.DriftedEnvironments(t.ctx, store.Key{}, 10)
	t.NoError(err)
	t.NotEmpty(found)
}

// replaceToken records a token, replaces it, and reads the new one.
func (t *tour) replaceToken(token store.Token) {
	for range 2 {
		sum := sha256.Sum256([]byte(uuid.NewString()))
		token.SHA256 = sum[:]
		t.NoError(t.Store.PutToken(t.ctx, token))
	}
	got, err := t.Store.Token(t.ctx, token.SHA256)
	t.NoError(err)
	t.Equal(token, got)
}

// recordTicks records a tick of a cron connector, skips one and moves one.
func (t *tour) recordTicks() {
	name := "cron-" + uuid.NewString()
	conn := store.Connector{
		Ref: t.objectRef(store.KindConnector, name), ID: uuid.New(), ProjectID: t.Project, EnvironmentID: t.Environment, Name: name,
		Type: store.TypeCron, Mode: "inbound", Enabled: true, Config: []byte(`{"schedule":"@hourly","timezone":"UTC"}`),
	}
	t.NoError(t.Store.PutConnector(t.ctx, conn))
	for _, skipped := range []string{"", "not now"} {
		due, err := t.Store.DueTicks(t.ctx, 100)
		t.NoError(err)
		i := slices.IndexFunc(due.Ticks, func(d store.DueTick) bool { return d.Route.Connector.ID == conn.ID })
		t.GreaterOrEqual(i, 0)
		now := due.Ticks[i]
		t.acceptAll(t.newEvent(func(e *store.Event) {
			e.ConnectorID, e.ConnectorVersion, e.Trigger, e.Class = conn.ID, now.Route.Connector.Version, store.TriggerCron, store.ClassDeferred
			e.Tick = &store.TickMove{Connector: conn.Key(), From: now.At, To: now.At.Add(time.Microsecond), Planned: true, Done: now.At}
			if e.Skipped = skipped; skipped != "" {
				e.Runs = nil
			}
		}))
	}
	times, err := t.Store.TickTimes(t.ctx, t.Project, []uuid.UUID{conn.ID})
	t.NoError(err)
	move := store.TickMove{Connector: conn.Key(), From: times[conn.ID].Next, To: times[conn.ID].Next.Add(time.Hour), Planned: true}
	moved, err := t.Store.MoveTicks(t.ctx, []store.TickMove{move})
	t.NoError(err)
	t.Equal(1, moved)
}
