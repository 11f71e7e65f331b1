// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// stranger calls methods for the victim's rows under a project of its own.
type stranger struct {
	*victim
	project uuid.UUID
}

func (s *stranger) key(id uuid.UUID) store.Key { return store.Key{ProjectID: s.project, ID: id} }

func (s *stranger) requireNotFound(err error) { s.ErrorIs(err, store.ErrNotFound) }

// liveDeployment returns the ID of the victim's live deployment.
func (s *stranger) liveDeployment() uuid.UUID {
	e := s.readEnvironment(s.environment.Key())
	s.NotNil(e.LiveDeploymentID)
	has, err := s.s.HasAgent(s.ctx, store.Key{ProjectID: e.ProjectID, ID: *e.LiveDeploymentID}, "first")
	s.NoError(err)
	s.True(has, "its own project sees it")
	return *e.LiveDeploymentID
}

func (s *stranger) someLease() store.Lease {
	return store.Lease{Run: s.key(s.running.Run.ID), Token: s.running.Token}
}

// ofThePlatform are the methods about all projects, with the reason.
var ofThePlatform = map[string]string{
	"Cluster":               "the lease belongs to the whole store",
	"HoldCluster":           "the lease belongs to the whole store",
	"AdoptCluster":          "the lease belongs to the whole store",
	"FinishAdoption":        "the lease belongs to the whole store",
	"ForCluster":            "the lease belongs to the whole store",
	"ListProjected":         "the sweep covers deleted objects of all projects",
	"ReportKeys":            "keys belong to the platform",
	"ForgetProcess":         "keys belong to the platform",
	"AdmitKeys":             "keys belong to the platform",
	"PromoteKeys":           "keys belong to the platform",
	"Keys":                  "keys belong to the platform",
	"DerivedFrom":           "the uses of a key are counted in all projects",
	"SealedBefore":          "the uses of a key are counted in all projects",
	"RetireKey":             "keys belong to the platform",
	"SweepLeases":           "leases of all projects expire",
	"DueTicks":              "connectors of all projects tick",
	"QueueFigures":          "open runs are counted over all projects",
	"CountStored":           "rows of all projects are counted",
	"RollUp":                "rows of all projects are counted",
	"IndexRuns":             "rows of all projects are indexed",
	"PutRates":              "exchange rates belong to the platform",
	"Rates":                 "exchange rates belong to the platform",
	"LatestRate":            "exchange rates belong to the platform",
	"RebuildRollups":        "rows of all projects are counted",
	"PostDeliveries":        "results of all projects are sent",
	"ClaimDeliveries":       "deliveries of all projects are due",
	"NextDelivery":          "deliveries of all projects are due",
	"DriftedEnvironments":   "environments of all projects are listed",
	"TroubledDestinations":  "failing ones are listed over all projects",
	"EnsurePartitions":      "the schema belongs to the whole store",
	"Replan":                "the planner's statistics belong to the whole store",
	"ConnectorIDs":          "it lists all IDs",
	"ProjectIDs":            "it lists all IDs",
	"NextReplay":            "replays of all projects advance",
	"TakeReplays":           "replays of all projects advance",
	"TakeRejectionNews":     "connectors of all projects reject requests",
	"ListPollRequests":      "repositories of all projects are polled",
	"ExpireDeliveries":      "deliveries of all projects expire",
	"ExpireRuns":            "runs of all projects expire",
	"DropHistory":           "history of all projects expires",
	"TrimHistory":           "history of all projects expires",
	"OldestHistory":         "the oldest day is that of all projects",
	"ProjectHistoryOverdue": "the most overdue day is that of all projects",
	"SweepExpired":          "keys, runners and blobs of all projects expire",
	"ClaimTraces":           "traces of all projects are due",
	"DropTraces":            "traces of all projects expire",
	"Token":                 "it finds the project of a token",
	"Subscribe":             "hints name their project",
	"FollowRun":             "it only asks for hints, which name their project",
	"Migrate":               "the schema belongs to the whole store",
	"Now":                   "the clock belongs to the whole store",
	"Ping":                  "the schema belongs to the whole store",
	"Connections":           "they belong to the whole store",
	"ListsAtOnce":           "they belong to the whole store",
	"Close":                 "it belongs to the process",
}

// strangers has a call of each method for a caller that knows all IDs of a project, but uses
// another project.
var strangers = func() map[string]func(s *stranger) {
	all := maps.Clone(projectionStrangers)
	maps.Copy(all, runStrangers)
	return all
}()

// projectionStrangers are the calls about configuration and builds.
var projectionStrangers = map[string]func(s *stranger){
	"ClaimID": func(s *stranger) { s.NoError(s.s.ClaimID(s.ctx, s.key(s.connector.ID), s.connector.Ref)) },
	"PutProject": func(s *stranger) {
		p := s.victim.project
		p.ID = s.project
		s.NoError(s.s.PutProject(s.ctx, p))
	},
	"PutEnvironment": func(s *stranger) {
		e := s.environment
		e.ProjectID = s.project
		s.NoError(s.s.PutEnvironment(s.ctx, e))
		got := s.readEnvironment(e.Key())
		s.Nil(got.LiveDeploymentID)
		s.Equal(e.Slug, got.Slug)
	},
	"MoveTicks": func(s *stranger) {
		times := s.tickTimes(s.cron)
		s.requireNone(s.s.MoveTicks(s.ctx, []store.TickMove{{Connector: s.key(s.cron.ID), From: times.Next, To: times.Next.Add(time.Hour)}}))
	},
	"TickTimes": func(s *stranger) { s.requireNone(s.s.TickTimes(s.ctx, s.project, []uuid.UUID{s.cron.ID})) },
	"PutConnector": func(s *stranger) {
		c := s.connector
		c.ProjectID, c.SecretDigest = s.project, []byte("another secret")
		s.NoError(s.s.PutConnector(s.ctx, c))
		route := s.readRoute(c.Key())
		s.False(route.Connector.Enabled, "its project has no such environment")
		s.Len(route.Connector.Secrets, 1)
		s.Empty(route.Links)
	},
	"DisableConnector": func(s *stranger) { s.NoError(s.s.DisableConnector(s.ctx, s.key(s.connector.ID), s.connector.Ref)) },
	"PutLink": func(s *stranger) {
		l := s.links[0]
		l.ProjectID = s.project
		s.NoError(s.s.PutLink(s.ctx, l))
	},
	"Remove": func(s *stranger) {
		e, c := s.environment, s.connector
		e.ProjectID, c.ProjectID = s.project, s.project
		s.NoError(s.s.PutEnvironment(s.ctx, e))
		s.NoError(s.s.PutConnector(s.ctx, c))
		for _, ref := range []store.ObjectRef{s.victim.project.Ref, s.environment.Ref, s.connector.Ref, s.links[0].Ref, s.building.Ref} {
			s.NoError(s.s.Remove(s.ctx, s.project, ref))
		}
	},
	"Route":              func(s *stranger) { s.requireNotFound(errorOf(s.s.Route(s.ctx, s.key(s.connector.ID)))) },
	"Holder":             func(s *stranger) { s.requireNotFound(errorOf(s.s.Holder(s.ctx, s.key(s.connector.ID)))) },
	"Holders":            func(s *stranger) { s.requireNone(s.s.Holders(s.ctx, s.project, store.KindConnector)) },
	"Environment":        func(s *stranger) { s.requireNotFound(errorOf(s.s.Environment(s.ctx, s.key(s.environment.ID)))) },
	"DefaultEnvironment": func(s *stranger) { s.requireNotFound(errorOf(s.s.DefaultEnvironment(s.ctx, s.project))) },
	"Connector":          func(s *stranger) { s.requireNotFound(errorOf(s.s.Connector(s.ctx, s.key(s.connector.ID)))) },
	"EnvironmentName":    func(s *stranger) { s.requireNotFound(errorOf(s.s.EnvironmentName(s.ctx, s.key(s.environment.ID)))) },
	"HasAgent":           func(s *stranger) { s.requireNone(s.s.HasAgent(s.ctx, s.key(s.liveDeployment()), "first")) },
	"SendsByMiddleware":  func(s *stranger) { s.requireNone(s.s.SendsByMiddleware(s.ctx, s.key(s.liveDeployment()), "first")) },
	"AgentNames":         func(s *stranger) { s.requireNone(s.s.AgentNames(s.ctx, s.key(s.liveDeployment()), 10)) },
	"Agents":             func(s *stranger) { s.requireNone(s.s.Agents(s.ctx, s.key(s.environment.ID))) },
	"Agent":              func(s *stranger) { s.requireNotFound(errorOf(s.s.Agent(s.ctx, s.key(s.environment.ID), "first"))) },
	"HasRuns":            func(s *stranger) { s.requireNone(s.s.HasRuns(s.ctx, s.key(s.environment.ID))) },
	"RunStatistics": func(s *stranger) {
		found := s.runStatistics(store.StatisticsQuery{Environment: s.key(s.environment.ID), AgentName: "first"})
		s.Zero(found.Total())
		s.Zero(found.Usage)
		s.Empty(found.Calls)
	},
	"ConnectorStatistics": func(s *stranger) {
		found := s.connectorStatistics(store.ConnectorStatisticsQuery{Connector: s.key(s.connector.ID)})
		s.Zero(found.Total())
		s.Empty(found.Last)
	},
	"AgentConfig": func(s *stranger) {
		_, _, err := s.s.AgentConfig(s.ctx, s.key(s.environment.ID), "first")
		s.requireNotFound(err)
	},
	"ProjectTelemetry": func(s *stranger) {
		found, err := s.s.ProjectTelemetry(s.ctx, s.project)
		s.NoError(err)
		s.Nil(found)
	},
	"RecordAudit": func(s *stranger) {
		s.NoError(errorOf(s.s.RecordAudit(s.ctx, store.AuditEntry{
			ProjectID: s.project, Operation: "o", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "theirs"},
		})))
	},
	"RecordAuditOutcome": func(s *stranger) {
		s.NoError(s.s.RecordAuditOutcome(s.ctx, s.project, s.act, store.AuditOutcome{Status: 500}))
	},
	"ListAudit": func(s *stranger) {
		s.requireNone(s.s.ListAudit(s.ctx, store.AuditQuery{ProjectID: s.project, Limit: 10}))
	},
	"HavePollRequests":  func(s *stranger) { s.requireNone(s.s.HavePollRequests(s.ctx, []uuid.UUID{s.project})) },
	"RequestPolls":      func(s *stranger) { s.NoError(s.s.RequestPolls(s.ctx, []uuid.UUID{s.project})) },
	"DeletePollRequest": func(s *stranger) { s.NoError(s.s.DeletePollRequest(s.ctx, s.project)) },
	"RecordRejections":  func(s *stranger) { s.refused(s.key(s.connector.ID), "theirs", 1) },
	"Rejections": func(s *stranger) {
		report, err := s.s.Rejections(s.ctx, s.key(s.connector.ID))
		s.NoError(err)
		s.Empty(report.Counts)
		s.Empty(report.Samples)
	},
	"DerivationKey":  func(s *stranger) { s.NoError(errorOf(s.s.DerivationKey(s.ctx, s.key(s.connector.ID), 1))) },
	"DerivationKeys": func(s *stranger) { s.requireNone(s.s.DerivationKeys(s.ctx, s.project, []uuid.UUID{s.connector.ID})) },
	"TakeRequest": func(s *stranger) {
		// The counter belongs to the other project.
		verdict, err := s.s.TakeRequest(s.ctx, s.project, store.RateLimit{Requests: 1000, Window: time.Hour})
		s.NoError(err)
		s.True(verdict.Allowed)
	},
	"Reseal": func(s *stranger) {
		// A missing row counts as changed, so nothing is written.
		_ = s.s.Reseal(s.ctx, store.SealedField{Connector: s.key(s.connector.ID)}, []byte("theirs"), sealingOne)
	},
	"BeginDeployment": func(s *stranger) {
		spec := s.building
		spec.ProjectID = s.project
		s.Equal(store.DeploymentPending, s.beginDeployment(spec).Status, "one of its own")
	},
	"Deployment":      func(s *stranger) { s.requireNotFound(errorOf(s.s.Deployment(s.ctx, s.key(s.building.ID)))) },
	"ListDeployments": func(s *stranger) { s.requireNone(s.s.ListDeployments(s.ctx, s.key(s.environment.ID))) },
	"ConnectorFiles":  func(s *stranger) { s.requireNotFound(errorOf(s.s.ConnectorFiles(s.ctx, s.key(s.building.ID)))) },
	"ConnectorsOf":    func(s *stranger) { s.requireNone(s.s.ConnectorsOf(s.ctx, s.key(s.environment.ID))) },
	"CodeConnectors":  func(s *stranger) { s.requireNone(s.s.CodeConnectors(s.ctx, s.key(s.environment.ID))) },
	"RecordConnectors": func(s *stranger) {
		s.requireNotFound(s.s.RecordConnectors(s.ctx, s.key(s.building.ID), json.RawMessage(`[]`)))
	},
	"StartBuild": func(s *stranger) { s.requireNotFound(s.s.StartBuild(s.ctx, s.key(s.building.ID), "")) },
	"EndDeployment": func(s *stranger) {
		s.requireNotFound(s.s.EndDeployment(s.ctx, s.key(s.building.ID), store.DeploymentCancelled, "", ""))
	},
	"ReportBuild": func(s *stranger) {
		s.requireNotFound(s.s.ReportBuild(s.ctx, s.key(s.building.ID), store.BuildReport{Phase: store.PhaseTesting}))
	},
	"AppendBuildLog": func(s *stranger) { s.requireNotFound(s.s.AppendBuildLog(s.ctx, s.key(s.building.ID), 1, "not theirs")) },
	"BuildLog":       func(s *stranger) { s.requireNone(s.s.BuildLog(s.ctx, s.key(s.building.ID))) },
	"BuildLogFrom":   func(s *stranger) { s.requireNotFound(errorOf(s.s.BuildLogFrom(s.ctx, s.key(s.building.ID), 0))) },
	"FinishBuild": func(s *stranger) {
		s.requireNotFound(s.s.FinishBuild(s.ctx, s.key(s.building.ID), store.BuildResult{BundleDigest: s.digest}))
	},
	"RequestPrefetch": func(s *stranger) { s.requireNotFound(s.s.RequestPrefetch(s.ctx, s.key(s.environment.ID), s.digest)) },
	"Runners":         func(s *stranger) { s.requireNone(s.s.Runners(s.ctx, s.key(s.environment.ID), time.Hour)) },
	"RecordDrift": func(s *stranger) {
		live := s.liveDeployment()
		s.NoError(s.s.RecordDrift(s.ctx, s.key(s.environment.ID), []store.DriftReport{driftReport(live, "theirs")}))
		s.Empty(s.readDrift(live))
	},
	"Drift": func(s *stranger) { s.requireNotFound(errorOf(s.s.Drift(s.ctx, s.key(s.liveDeployment())))) },
	"Activate": func(s *stranger) {
		s.requireNotFound(errorOf(s.s.Activate(s.ctx, store.Activation{Deployment: s.key(s.building.ID)})))
	},
	"PutBlob": func(s *stranger) {
		s.NoError(errorOf(s.s.PutBlob(s.ctx, s.key(s.blob), strings.NewReader("one's own"))))
		r, err := s.s.OpenBlob(s.ctx, s.key(s.blob))
		s.Equal("one's own", string(s.readAll(r, err)))
	},
	"DropBlob": func(s *stranger) { s.NoError(s.s.DropBlob(s.ctx, s.key(s.blob))) },
	"OpenBlob": func(s *stranger) { s.requireNotFound(errorOf(s.s.OpenBlob(s.ctx, s.key(s.blob)))) },
	"PutBundle": func(s *stranger) {
		s.NoError(errorOf(s.s.PutBundle(s.ctx, s.key(s.building.ID), s.digest, bytes.NewReader([]byte("a bundle of theirs")), 1<<20)))
	},
	"NamesBundle": func(s *stranger) { s.requireNotFound(s.s.NamesBundle(s.ctx, s.key(s.environment.ID), s.digest)) },
	"OpenBundle":  func(s *stranger) { s.requireNotFound(errorOf(s.s.OpenBundle(s.ctx, s.project, s.digest))) },
	"PutUpload": func(s *stranger) {
		u, err := s.s.PutUpload(s.ctx, s.project, strings.NewReader("an upload of theirs"), 1<<20)
		s.NoError(err)
		s.Equal(s.uploaded, u.Digest)
	},
	"HasUpload":  func(s *stranger) { s.requireNotFound(s.s.HasUpload(s.ctx, s.project, s.uploaded)) },
	"OpenUpload": func(s *stranger) { s.requireNotFound(errorOf(s.s.OpenUpload(s.ctx, s.key(s.building.ID)))) },
	"PutToken": func(s *stranger) {
		token := s.token
		token.SHA256, token.ProjectID = []byte(s.project.String()), s.project
		s.NoError(s.s.PutToken(s.ctx, token))
		_, err := s.s.Token(s.ctx, token.SHA256)
		s.requireNotFound(err) // its project has no such environment
		got, err := s.s.Token(s.ctx, s.token.SHA256)
		s.NoError(err)
		s.Equal(s.token, got)
	},
}
