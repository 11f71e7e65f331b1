// SPDX-License-Identifier: Apache-2.0

// Package storetest is the specification of a store: the guarantees in the comments of package
// store, one subtest per guarantee. Every engine runs it.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
)

// lease is longer than any test. expired is over when it begins, so no test has to wait.
const (
	lease   = time.Hour
	expired = -time.Second
)

// promise is a guarantee of a store.
type promise struct {
	name  string
	check func(w *world)
}

// withAgent returns the check of a world with a live deployment of the agent "first".
func withAgent(check func(w *world)) func(w *world) {
	return func(w *world) {
		w.deploy("one", "first")
		check(w)
	}
}

// withAgents returns the check of a world with a live deployment of the agents "first" and "second".
func withAgents(check func(w *world)) func(w *world) {
	return func(w *world) {
		w.deploy("one", "first", "second")
		check(w)
	}
}

// Opened is a store with direct access to its database: tests read all rows, and move times back
// instead of waiting.
type Opened struct {
	store.Store
	DB *sql.DB
}

// groups are all promises, by topic.
var groups = []struct {
	name     string
	promises []promise
}{
	{"Tenants", slices.Concat(tenantPromises, heldIDPromises)},
	{"Chosen", chosenPromises},
	{"Identities", identityPromises},
	{"Clusters", clusterPromises},
	{"Schema", schemaPromises},
	{"Projection", projectionPromises},
	{"Connectors", connectorPromises},
	{"Duplicates", duplicatePromises},
	{"Removal", removalPromises},
	{"Limits", limitPromises},
	{"Deployments", deploymentPromises},
	{"Drift", driftPromises},
	{"Builds", buildPromises},
	{"Activations", slices.Concat(activationPromises, codePromises)},
	{"Bounds", boundPromises},
	{"Blobs", blobPromises},
	{"Ingest", ingestPromises},
	{"Ticks", tickPromises},
	{"Claims", claimPromises},
	{"Beginnings", beginningPromises},
	{"Order", orderPromises},
	{"Deliveries", slices.Concat(deliveryPromises, postingPromises, destinationPromises)},
	{"Sends", slices.Concat(sendPromises, failedDeliveryPromises, carriedPromises)},
	{"Replays", slices.Concat(replayPromises, hurryPromises, testDeliveryPromises)},
	{"ReplayJobs", replaysPromises},
	{"Held", heldPromises},
	{"Suspensions", suspensionPromises},
	{"Variants", variantPromises},
	{"Journal", journalPromises},
	{"Endings", endingPromises},
	{"Large", largePromises},
	{"Uploads", uploadPromises},
	{"Bundles", bundlePromises},
	{"LargeFailures", largeFailures},
	{"Sweeps", sweepPromises},
	{"Queue", queuePromises},
	{"Demands", demandPromises},
	{"Contention", contentionPromises},
	{"Concurrency", concurrencyPromises},
	{"UnknownKeys", unknownKeyPromises},
	{"ContendedKeys", keyContentionPromises},
	{"History", historyPromises},
	{"Stored", storedPromises},
	{"Search", searchPromises},
	{"Statistics", slices.Concat(statisticsPromises, openRunPromises)},
	{"ConnectorStatistics", connectorStatisticsPromises},
	{"ConnectorLists", connectorListPromises},
	{"Rebuild", rebuildPromises},
	{"Retention", slices.Concat(retentionPromises, trimPromises, shorterPromises, deletionPromises)},
	{"Departures", slices.Concat(departurePromises, deploymentDeparturePromises)},
	{"Poison", poisonPromises},
	{"Erasure", erasurePromises},
	{"Files", slices.Concat(filePromises, savedFilePromises)},
	{"Load", loadPromises},
	{"Tokens", tokenPromises},
	{"Audit", auditPromises},
	{"Keys", keyPromises},
	{"Hints", hintPromises},
	{"Rates", ratePromises},
	{"Usage", usagePromises},
	{"Consumed", slices.Concat(consumedPromises, outboxSharingPromises)},
	{"Rejections", rejectionPromises},
	{"PollRequests", pollRequestPromises},
	{"Traces", tracePromises},
	{"Model", modelPromises},
	{"DeploymentModel", deploymentModelPromises},
}

// concurrentGroups are the groups with concurrent calls. The race detector makes a group several
// times slower, so it runs only these, except in a nightly run.
var concurrentGroups = []string{"Contention", "Concurrency", "ContendedKeys", "Hints", "Search", "Held"}

// Run checks an engine. open returns a migrated, empty store, which it closes at the end of the
// test.
func Run(t *testing.T, open func(t *testing.T) Opened) {
	for _, group := range groups {
		if raceDetector && !testenv.Nightly() && !slices.Contains(concurrentGroups, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) { checkPromises(t, group.promises, open) })
	}
}

// checkPromises checks promises, each on a store of its own.
func checkPromises(t *testing.T, promises []promise, open func(t *testing.T) Opened) {
	t.Parallel()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.check(newWorld(t, open(t)))
		})
	}
}

// world is a store with a project, an environment and a sync connector with two links, to the
// agents "first" and "second". Nothing is deployed.
type world struct {
	*require.Assertions
	t   *testing.T
	ctx context.Context
	s   store.Store
	db  *sql.DB

	project     store.Project
	environment store.Environment
	connector   store.Connector
	links       []store.Link
	// limits are the limits of agents.
	limits map[string]int
}

// origin is the creation time of the objects in a world.
var origin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newWorld(t *testing.T, o Opened) *world {
	s := o.Store
	w := &world{Assertions: require.New(t), t: t, ctx: t.Context(), s: s, db: o.DB}
	w.NoError(s.Ping(w.ctx))
	w.project = store.Project{Ref: objectRef(store.KindProject, "shop"), ID: uuid.New(), DisplayName: "Shop", Limits: store.ProjectLimits{BacklogRuns: 1000, BacklogInput: 1 << 30, Storage: 1 << 30}}
	w.NoError(s.PutProject(w.ctx, w.project))
	w.environment = w.newEnvironment("production", origin)
	w.NoError(s.PutEnvironment(w.ctx, w.environment))
	w.connector = w.newConnector("orders")
	w.NoError(s.PutConnector(w.ctx, w.connector))
	for i, agent := range []string{"first", "second"} {
		link := w.newLink("orders-"+agent, w.connector.ID, agent, origin.Add(time.Duration(i)*time.Minute))
		w.NoError(s.PutLink(w.ctx, link))
		w.links = append(w.links, link)
	}
	return w
}

// objectRef returns an object of the test's cluster, in its first incarnation.
func objectRef(kind, name string) store.ObjectRef {
	return store.ObjectRef{
		Namespace: "default", Kind: kind, Name: name,
		ObjectUID: name + "-uid", Generation: 1,
	}
}

func (w *world) newEnvironment(name string, created time.Time) store.Environment {
	return store.Environment{
		Ref: objectRef(store.KindEnvironment, name), ID: uuid.New(), ProjectID: w.project.ID,
		DisplayName: name, Slug: name, Kind: "standard", ObjectCreatedAt: created,
	}
}

func (w *world) newConnector(name string) store.Connector {
	return store.Connector{
		Ref: objectRef(store.KindConnector, name), ID: uuid.New(), ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
		Name: name, Type: "webhook", Mode: "sync", Enabled: true, Config: timeoutSettings(30), Sealed: []byte{0, 1, 255},
		SecretDigest: []byte("secret one"), SecretGracePeriod: 24 * time.Hour,
	}
}

// timeoutSettings returns the settings of a sync webhook whose callers wait so many seconds.
func timeoutSettings(seconds int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"timeout_seconds":%d}`, seconds))
}

func (w *world) newLink(name string, connector uuid.UUID, agent string, created time.Time) store.Link {
	return store.Link{
		Ref: objectRef(store.KindConnectorLink, name), ID: uuid.New(), ProjectID: w.project.ID, ConnectorID: connector,
		AgentName: agent, ObjectCreatedAt: created,
	}
}

func (w *world) newDeployment(name string) store.DeploymentSpec {
	return store.DeploymentSpec{
		Ref: objectRef(store.KindDeployment, name), ID: uuid.New(), ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
		Fingerprint: "fingerprint of " + name, SourceType: "git", Branch: "main", Commit: strings.Repeat("0123", 10), SkipTests: true,
	}
}

// beginDeployment begins a deployment.
func (w *world) beginDeployment(spec store.DeploymentSpec) store.Deployment {
	d, err := w.s.BeginDeployment(w.ctx, spec)
	w.NoError(err)
	return d
}

// beginNew begins a new deployment.
func (w *world) beginNew(name string) store.DeploymentSpec {
	spec := w.newDeployment(name)
	w.beginDeployment(spec)
	return spec
}

// startBuild begins a deployment and its build.
func (w *world) startBuild(spec store.DeploymentSpec) store.DeploymentSpec {
	w.beginDeployment(spec)
	w.NoError(w.s.StartBuild(w.ctx, spec.Key(), ""))
	return spec
}

// putBundle stores a bundle with this content for a deleted deployment, and returns its digest.
func (w *world) putBundle(content string) string { return w.putBundleOf(uuid.New(), content) }

// digestOf returns the digest of a bundle.
func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// putBundleOf stores a bundle for a deployment.
func (w *world) putBundleOf(deployment uuid.UUID, content string) string {
	digest := digestOf(content)
	size, err := w.s.PutBundle(w.ctx, w.key(deployment), digest, strings.NewReader(content), 1<<20)
	w.NoError(err)
	w.EqualValues(len(content), size)
	return digest
}

// build builds a deployment up to its activation.
func (w *world) build(name string, agents ...string) store.DeploymentSpec {
	spec := w.startBuild(w.newDeployment(name))
	w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), w.buildResult("bundle of "+name, agents...)))
	return spec
}

func (w *world) buildResult(content string, agents ...string) store.BuildResult {
	result := store.BuildResult{BundleDigest: w.putBundle(content), TestResults: json.RawMessage(`{"passed":1}`)}
	for _, agent := range agents {
		result.Agents = append(result.Agents, store.Agent{
			Name: agent, Type: "llm", SourcePath: "agents/" + agent + ".yaml", Config: json.RawMessage(`{"model":"m"}`),
			MaxConcurrentRuns: w.limits[agent],
		})
	}
	return result
}

func (w *world) activate(id uuid.UUID) store.ActivationResult {
	return w.activateWith(store.Activation{Deployment: w.key(id)})
}

func (w *world) activateWith(a store.Activation) store.ActivationResult {
	result, err := w.s.Activate(w.ctx, a)
	w.NoError(err)
	return result
}

// deploy makes a new deployment with these agents live.
func (w *world) deploy(name string, agents ...string) store.DeploymentSpec {
	spec := w.build(name, agents...)
	w.True(w.activate(spec.ID).Live)
	return spec
}

// version returns the current version of the connector.
func (w *world) version() int64 { return w.readRoute(w.connector.Key()).Connector.Version }

// event returns an event with a run for each link.
func (w *world) event() store.Event { return w.eventAt(w.version()) }

// eventAt is event with a known version of the connector.
func (w *world) eventAt(version int64) store.Event {
	e := store.Event{
		ConnectorRunID: newUUIDv7(), ProjectID: w.project.ID, EnvironmentID: w.environment.ID, ConnectorID: w.connector.ID,
		ConnectorVersion: version, Trigger: store.TriggerWebhook, Input: []byte(`{"order":1}`),
		ContentType: "application/json",
	}
	for _, link := range w.links {
		e.Runs = append(e.Runs, store.EventRun{ID: newUUIDv7(), LinkID: link.ID, AgentName: link.AgentName})
	}
	return e
}

// singleEvent returns an event with a run for the first link only.
func (w *world) singleEvent() store.Event {
	e := w.event()
	e.Runs = e.Runs[:1]
	return e
}

// accept stores events that must all be accepted, and sets their final IDs.
func (w *world) accept(events ...*store.Event) {
	all := make([]store.Event, len(events))
	for i, e := range events {
		all[i] = *e
	}
	w.acceptAll(all)
	for i := range events {
		*events[i] = all[i]
	}
}

// acceptEvent accepts one event and returns it with its final IDs.
func (w *world) acceptEvent(e store.Event) store.Event {
	w.accept(&e)
	return e
}

// acceptAll is accept for a list.
func (w *world) acceptAll(events []store.Event) {
	admissions := w.tryAccept(events...)
	w.Len(admissions, len(events))
	for i, a := range admissions {
		w.NoError(a.Err)
		w.Equal(store.Accepted, a.Verdict)
		stamped(&events[i], a)
	}
}

// stamped sets the final IDs of an event.
func stamped(e *store.Event, a store.Admission) {
	e.ConnectorRunID, e.Runs = a.ConnectorRunID, slices.Clone(e.Runs)
	for i, id := range a.RunIDs {
		e.Runs[i].ID = id
	}
}

// claim claims up to limit runs for the given time, as a new runner.
func (w *world) claim(limit int, hold time.Duration) []store.Claimed {
	return w.claimAs(uuid.NewString(), limit, hold)
}

// claimAs is claim as a runner, which does not name its leases.
func (w *world) claimAs(runner string, limit int, hold time.Duration) []store.Claimed {
	result, err := w.s.Claim(w.ctx, store.Claim{
		Environment: w.environment.Key(), RunnerID: runner, Digests: []string{"sha256:held"},
		Slots: max(limit, 1), Limit: limit, Lease: hold,
	})
	w.NoError(err)
	w.Empty(result.Lost)
	return result.Runs
}

// complete ends one run.
func (w *world) complete(c store.Completion) error {
	answers, err := w.s.Complete(w.ctx, []store.Completion{c})
	if err != nil {
		return err
	}
	w.Len(answers, 1)
	return answers[0]
}

// journalOf reads the journal of a claimed run.
func (w *world) journalOf(c store.Claimed) []store.JournalEntry {
	entries := w.readJournal(c.Run.Key())
	w.EqualValues(len(entries), c.JournalLength)
	return w.undated(entries)
}

// undated returns entries that were read without their times, which the database gave them a moment ago.
func (w *world) undated(read []store.JournalEntry) []store.JournalEntry {
	entries := slices.Clone(read)
	for i := range entries {
		w.WithinDuration(time.Now(), entries[i].At, time.Hour)
		entries[i].At = time.Time{}
	}
	return entries
}

// running accepts a single run and claims it.
func (w *world) running(hold time.Duration) (store.Event, store.Claimed) {
	e := w.acceptEvent(w.singleEvent())
	claimed := w.claim(10, hold)
	w.Len(claimed, 1)
	w.Equal(e.Runs[0].ID, claimed[0].Run.ID)
	return e, claimed[0]
}

// sweep ends expired claims and returns the number of moved runs.
func (w *world) sweep(limit int) int { return w.sweepLeases(limit).Runs() }

// key returns the key of a row in the world's project.
func (w *world) key(id uuid.UUID) store.Key { return store.Key{ProjectID: w.project.ID, ID: id} }

func (w *world) run(id uuid.UUID) store.Run {
	run, err := w.s.Run(w.ctx, w.key(id))
	w.NoError(err)
	return run
}

func (w *world) outcome(id uuid.UUID) store.Outcome {
	outcome, err := w.s.Outcome(w.ctx, w.key(id))
	w.NoError(err)
	return outcome
}

func (w *world) deployment(id uuid.UUID) store.Deployment {
	d, err := w.s.Deployment(w.ctx, w.key(id))
	w.NoError(err)
	return d
}

func (w *world) readAll(r io.ReadCloser, err error) []byte {
	w.NoError(err)
	defer r.Close()
	var b bytes.Buffer
	w.NoError(errorOf(b.ReadFrom(r)))
	return b.Bytes()
}

func leaseOf(c store.Claimed) store.Lease { return store.Lease{Run: c.Run.Key(), Token: c.Token} }

// heldClaims returns claims for a heartbeat without reports about their runs.
func heldClaims(leases ...store.Lease) []store.Held {
	held := make([]store.Held, len(leases))
	for i, l := range leases {
		held[i].Lease = l
	}
	return held
}

func completed(c store.Claimed) store.Completion {
	return store.Completion{Lease: leaseOf(c), Status: store.RunCompleted, Output: "done"}
}

func newUUIDv7() uuid.UUID { return uuid.Must(uuid.NewV7()) }
