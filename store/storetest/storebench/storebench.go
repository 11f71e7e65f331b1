// SPDX-License-Identifier: Apache-2.0

// Package storebench measures the store's cost of a webhook: accepting events in batches, and the
// three transactions of a run.
package storebench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// Scene is a project with a live deployment and a connector with links.
type Scene struct {
	Store                                       store.Store
	Project, Environment, Connector, Deployment uuid.UUID
	Links                                       []store.Link // each to an agent of its own
	Version                                     int64
	// Age, if set, makes bundles old enough for the sweep.
	Age func()
	// Old, if set, creates history beyond the project's retention.
	Old func()

	project store.Project // as it was written
}

// NewScene fills a migrated store, with n links.
func NewScene(tb testing.TB, s store.Store, links int) *Scene {
	tb.Helper()
	ctx := tb.Context()
	c := &Scene{Store: s, Project: uuid.New(), Environment: uuid.New(), Connector: uuid.New(), Deployment: uuid.New()}
	ref := c.objectRef
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.project = store.Project{Ref: ref(store.KindProject, "project"), ID: c.Project}
	require.NoError(tb, s.PutProject(ctx, c.project))
	require.NoError(tb, s.PutEnvironment(ctx, store.Environment{
		Ref: ref(store.KindEnvironment, "e"), ID: c.Environment, ProjectID: c.Project, Slug: "e", Kind: "standard",
		ObjectCreatedAt: now,
	}))
	require.NoError(tb, s.PutConnector(ctx, store.Connector{
		Ref: ref(store.KindConnector, "c"), ID: c.Connector, ProjectID: c.Project, EnvironmentID: c.Environment,
		Name: "c", Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte(`{"authentication":"none"}`),
	}))
	var agents []store.Agent
	for i := range links {
		name := fmt.Sprintf("hello-%d", i)
		link := store.Link{
			Ref: ref(store.KindConnectorLink, name), ID: uuid.New(), ProjectID: c.Project, ConnectorID: c.Connector,
			AgentName: name, ObjectCreatedAt: now.Add(time.Duration(i) * time.Second),
		}
		require.NoError(tb, s.PutLink(ctx, link))
		c.Links = append(c.Links, link)
		agents = append(agents, store.Agent{Name: name, Type: "llm", SourcePath: "agents/hello.yaml"})
	}
	_, err := s.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: ref(store.KindDeployment, "d"), ID: c.Deployment, ProjectID: c.Project, EnvironmentID: c.Environment,
		Fingerprint: "f", SourceType: "git",
	})
	require.NoError(tb, err)
	require.NoError(tb, s.StartBuild(ctx, c.key(c.Deployment), ""))
	bundle := "a bundle"
	sum := sha256.Sum256([]byte(bundle))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err = s.PutBundle(ctx, store.Key{ProjectID: c.Project}, digest, strings.NewReader(bundle), 1<<20)
	require.NoError(tb, err)
	require.NoError(tb, s.FinishBuild(ctx, c.key(c.Deployment), store.BuildResult{BundleDigest: digest, Agents: agents}))
	result, err := s.Activate(ctx, store.Activation{Deployment: c.key(c.Deployment)})
	require.NoError(tb, err)
	require.True(tb, result.Live)
	route, err := s.Route(ctx, c.key(c.Connector))
	require.NoError(tb, err)
	require.True(tb, route.Connector.Enabled)
	require.Len(tb, route.Links, links)
	c.Version = route.Connector.Version
	return c
}

// Crons creates n hourly cron connectors, linked to the scene's first agent.
func (c *Scene) Crons(tb testing.TB, n int) (out []store.Connector) {
	tb.Helper()
	for i := range n {
		name := fmt.Sprintf("cron-%d", i)
		conn := store.Connector{
			Ref: c.objectRef(store.KindConnector, name), ID: uuid.New(), ProjectID: c.Project, EnvironmentID: c.Environment, Name: name,
			Type: store.TypeCron, Mode: "inbound", Enabled: true, Config: []byte(`{"schedule":"@hourly","timezone":"UTC","missed_ticks":"skip"}`),
		}
		require.NoError(tb, c.Store.PutConnector(tb.Context(), conn))
		require.NoError(tb, c.Store.PutLink(tb.Context(), store.Link{
			Ref: c.objectRef(store.KindConnectorLink, name), ID: uuid.New(), ProjectID: c.Project, ConnectorID: conn.ID, AgentName: c.Links[0].AgentName,
		}))
		out = append(out, conn)
	}
	return out
}

// objectRef returns an object of the project.
func (c *Scene) objectRef(kind, name string) store.ObjectRef {
	return store.ObjectRef{Namespace: c.Project.String(), Kind: kind, Name: name, ObjectUID: uuid.NewString(), Generation: 1}
}

func (c *Scene) key(id uuid.UUID) store.Key { return store.Key{ProjectID: c.Project, ID: id} }

// Event returns an event of 1 kB.
func (c *Scene) Event(tb testing.TB) store.Event {
	tb.Helper()
	e := store.Event{
		ConnectorRunID: newID(tb), ProjectID: c.Project, EnvironmentID: c.Environment, ConnectorID: c.Connector,
		ConnectorVersion: c.Version, Trigger: store.TriggerWebhook, Input: []byte(strings.Repeat("x", 1000)),
		ContentType: "application/json",
	}
	for _, link := range c.Links {
		e.Runs = append(e.Runs, store.EventRun{ID: newID(tb), LinkID: link.ID, AgentName: link.AgentName})
	}
	return e
}

func newID(tb testing.TB) uuid.UUID {
	tb.Helper()
	id, err := uuid.NewV7()
	require.NoError(tb, err)
	return id
}

// Trip processes one event: accept, claim, complete, read the outcome.
func (c *Scene) Trip(ctx context.Context, tb testing.TB) {
	tb.Helper()
	e := c.Event(tb)
	admissions, err := c.Store.Accept(ctx, []store.Event{e})
	require.NoError(tb, err)
	require.NoError(tb, admissions[0].Err)
	require.Equal(tb, store.Accepted, admissions[0].Verdict)
	claimed := c.claim(ctx, tb, len(c.Links))
	require.Len(tb, claimed, len(c.Links))
	c.complete(ctx, tb, claimed, []store.JournalEntry{{Sequence: 1, Kind: store.JournalModelAnswer, Data: []byte(`{"text":"hello"}`)}})
	outcome, err := c.Store.Outcome(ctx, c.key(admissions[0].ConnectorRunID))
	require.NoError(tb, err)
	require.Equal(tb, store.ConnectorRunCompleted, outcome.Status)
}

func (c *Scene) claim(ctx context.Context, tb testing.TB, limit int) []store.Claimed {
	tb.Helper()
	result, err := c.Store.Claim(ctx, store.Claim{
		Environment: c.key(c.Environment), RunnerID: "r", Slots: limit, Limit: limit, Lease: store.LeaseDuration,
	})
	require.NoError(tb, err)
	return result.Runs
}

func (c *Scene) complete(ctx context.Context, tb testing.TB, claimed []store.Claimed, journal []store.JournalEntry) {
	tb.Helper()
	completions := make([]store.Completion, len(claimed))
	for i, run := range claimed {
		completions[i] = store.Completion{
			Lease: store.Lease{Run: run.Run.Key(), Token: run.Token}, Status: store.RunCompleted, Output: "hello", Journal: journal,
		}
	}
	answers, err := c.Store.Complete(ctx, completions)
	require.NoError(tb, err)
	for _, err := range answers {
		require.NoError(tb, err)
	}
}

// history accepts and ends 10,000 events, and queues as many in another environment.
func (c *Scene) history(tb testing.TB) {
	tb.Helper()
	other := NewScene(tb, c.Store, 1)
	for range 40 {
		var events []store.Event
		for range 250 {
			events = append(events, c.Event(tb), other.Event(tb))
		}
		_, err := c.Store.Accept(tb.Context(), events)
		require.NoError(tb, err)
		c.complete(tb.Context(), tb, c.claim(tb.Context(), tb, 250), nil)
	}
}

// Run runs the benchmarks on migrated stores from newStore.
func Run(b *testing.B, newStore func(b *testing.B) store.Store) {
	b.Helper()
	for name, batch := range map[string]int{"accept 1": 1, "accept 64": 64, "accept 256": 256} {
		b.Run(name, func(b *testing.B) {
			c := NewScene(b, newStore(b), 1)
			for b.Loop() {
				events := make([]store.Event, batch)
				for i := range events {
					events[i] = c.Event(b)
				}
				_, err := c.Store.Accept(b.Context(), events)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
		})
	}
	b.Run("accept 1 from 64", func(b *testing.B) {
		c := NewScene(b, newStore(b), 1)
		b.SetParallelism(32)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := c.Store.Accept(b.Context(), []store.Event{c.Event(b)}); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("trip", func(b *testing.B) {
		c := NewScene(b, newStore(b), 1)
		for b.Loop() {
			c.Trip(b.Context(), b)
		}
	})
	b.Run("trip with a history", func(b *testing.B) {
		c := NewScene(b, newStore(b), 1)
		c.history(b)
		for b.Loop() {
			c.Trip(b.Context(), b)
		}
	})
}
