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
	e, err := s.s.Environment(s.ctx, s.environment.Key())
	s.NoError(err)
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
		got, err := s.s.Environment(s.ctx, e.Key())
		s.NoError(err)
		s.Nil(got.LiveDeploymentID)
		s.Equal(e.Slug, got.Slug)
	},
	"MoveTicks": func(s *stranger) {
		times := s.tickTimes(s.cron)
		n, err := s.s.MoveTicks(s.ctx, []store.TickMove{{Connector: s.key(s.cron.ID), From: times.Next, To: times.Next.Add(time.Hour)}})
		s.NoError(err)
		s.Zero(n)
	},
	"TickTimes": func(s *stranger) {
		times, err := s.s.TickTimes(s.ctx, s.project, []uuid.UUID{s.cron.ID})
		s.NoError(err)
		s.Empty(times)
	},
	"PutConnector": func(s *stranger) {
		c := s.connector
		c.ProjectID, c.SecretDigest = s.project, []byte("another secret")
		s.NoError(s.s.PutConnector(s.ctx, c))
		route, err := s.s.Route(s.ctx, c.Key())
		s.NoError(err)
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
	"Route": func(s *stranger) {
		_, err := s.s.Route(s.ctx, s.key(s.connector.ID))
		s.requireNotFound(err)
	},
	"Holder": func(s *stranger) {
		_, err := s.s.Holder(s.ctx, s.key(s.connector.ID))
		s.requireNotFound(err)
	},
	"Holders": func(s *stranger) {
		holders, err := s.s.Holders(s.ctx, s.project, store.KindConnector)
		s.NoError(err)
		s.Empty(holders)
	},
	"Environment": func(s *stranger) {
		_, err := s.s.Environment(s.ctx, s.key(s.environment.ID))
		s.requireNotFound(err)
	},
	"DefaultEnvironment": func(s *stranger) {
		_, err := s.s.DefaultEnvironment(s.ctx, s.project)
		s.requireNotFound(err)
	},
	"Connector": func(s *stranger) {
		_, err := s.s.Connector(s.ctx, s.key(s.connector.ID))
		s.requireNotFound(err)
	},
	"EnvironmentName": func(s *stranger) {
		_, err := s.s.EnvironmentName(s.ctx, s.key(s.environment.ID))
		s.requireNotFound(err)
	},
	"HasAgent": func(s *stranger) {
		has, err := s.s.HasAgent(s.ctx, s.key(s.liveDeployment()), "first")
		s.NoError(err)
		s.False(has)
	},
	"SendsByMiddleware": func(s *stranger) {
		sends, err := s.s.SendsByMiddleware(s.ctx, s.key(s.liveDeployment()), "first")
		s.NoError(err)
		s.False(sends)
	},
	"AgentNames": func(s *stranger) {
		names, err := s.s.AgentNames(s.ctx, s.key(s.liveDeployment()), 10)
		s.NoError(err)
		s.Empty(names)
	},
	"Agents": func(s *stranger) {
		agents, err := s.s.Agents(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.Empty(agents)
	},
	"Agent": func(s *stranger) {
		_, err := s.s.Agent(s.ctx, s.key(s.environment.ID), "first")
		s.requireNotFound(err)
	},
	"HasRuns": func(s *stranger) {
		has, err := s.s.HasRuns(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.False(has)
	},
	"RunStatistics": func(s *stranger) {
		found, err := s.s.RunStatistics(s.ctx, store.StatisticsQuery{Environment: s.key(s.environment.ID), AgentName: "first"})
		s.NoError(err)
		s.Zero(found.Total())
		s.Zero(found.Usage)
		s.Empty(found.Calls)
	},
	"ConnectorStatistics": func(s *stranger) {
		found, err := s.s.ConnectorStatistics(s.ctx, store.ConnectorStatisticsQuery{Connector: s.key(s.connector.ID)})
		s.NoError(err)
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
		_, err := s.s.RecordAudit(s.ctx, store.AuditEntry{
			ProjectID: s.project, Operation: "o", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "theirs"},
		})
		s.NoError(err)
	},
	"RecordAuditOutcome": func(s *stranger) {
		s.NoError(s.s.RecordAuditOutcome(s.ctx, s.project, s.act, store.AuditOutcome{Status: 500}))
	},
	"ListAudit": func(s *stranger) {
		list, err := s.s.ListAudit(s.ctx, store.AuditQuery{ProjectID: s.project, Limit: 10})
		s.NoError(err)
		s.Empty(list)
	},
	"HavePollRequests": func(s *stranger) {
		asked, err := s.s.HavePollRequests(s.ctx, []uuid.UUID{s.project})
		s.NoError(err)
		s.Empty(asked)
	},
	"RequestPolls":      func(s *stranger) { s.NoError(s.s.RequestPolls(s.ctx, []uuid.UUID{s.project})) },
	"DeletePollRequest": func(s *stranger) { s.NoError(s.s.DeletePollRequest(s.ctx, s.project)) },
	"RecordRejections":  func(s *stranger) { s.refused(s.key(s.connector.ID), "theirs", 1) },
	"Rejections": func(s *stranger) {
		report, err := s.s.Rejections(s.ctx, s.key(s.connector.ID))
		s.NoError(err)
		s.Empty(report.Counts)
		s.Empty(report.Samples)
	},
	"DerivationKey": func(s *stranger) {
		_, err := s.s.DerivationKey(s.ctx, s.key(s.connector.ID), 1)
		s.NoError(err)
	},
	"DerivationKeys": func(s *stranger) {
		keys, err := s.s.DerivationKeys(s.ctx, s.project, []uuid.UUID{s.connector.ID})
		s.NoError(err)
		s.Empty(keys)
	},
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
		d, err := s.s.BeginDeployment(s.ctx, spec)
		s.NoError(err)
		s.Equal(store.DeploymentPending, d.Status, "one of its own")
	},
	"Deployment": func(s *stranger) {
		_, err := s.s.Deployment(s.ctx, s.key(s.building.ID))
		s.requireNotFound(err)
	},
	"ListDeployments": func(s *stranger) {
		list, err := s.s.ListDeployments(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.Empty(list)
	},
	"ConnectorFiles": func(s *stranger) {
		_, err := s.s.ConnectorFiles(s.ctx, s.key(s.building.ID))
		s.requireNotFound(err)
	},
	"ConnectorsOf": func(s *stranger) {
		ids, err := s.s.ConnectorsOf(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.Empty(ids)
	},
	"CodeConnectors": func(s *stranger) {
		list, err := s.s.CodeConnectors(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.Empty(list)
	},
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
	"BuildLog": func(s *stranger) {
		log, err := s.s.BuildLog(s.ctx, s.key(s.building.ID))
		s.NoError(err)
		s.Empty(log)
	},
	"BuildLogFrom": func(s *stranger) {
		_, err := s.s.BuildLogFrom(s.ctx, s.key(s.building.ID), 0)
		s.requireNotFound(err)
	},
	"FinishBuild": func(s *stranger) {
		s.requireNotFound(s.s.FinishBuild(s.ctx, s.key(s.building.ID), store.BuildResult{BundleDigest: s.digest}))
	},
	"RequestPrefetch": func(s *stranger) { s.requireNotFound(s.s.RequestPrefetch(s.ctx, s.key(s.environment.ID), s.digest)) },
	"Runners": func(s *stranger) {
		runners, err := s.s.Runners(s.ctx, s.key(s.environment.ID), time.Hour)
		s.NoError(err)
		s.Empty(runners)
	},
	"RecordDrift": func(s *stranger) {
		live := s.liveDeployment()
		s.NoError(s.s.RecordDrift(s.ctx, s.key(s.environment.ID), []store.DriftReport{driftReport(live, "theirs")}))
		s.Empty(s.readDrift(live))
	},
	"Drift": func(s *stranger) {
		_, err := s.s.Drift(s.ctx, s.key(s.liveDeployment()))
		s.requireNotFound(err)
	},
	"Activate": func(s *stranger) {
		_, err := s.s.Activate(s.ctx, store.Activation{Deployment: s.key(s.building.ID)})
		s.requireNotFound(err)
	},
	"PutBlob": func(s *stranger) {
		_, err := s.s.PutBlob(s.ctx, s.key(s.blob), strings.NewReader("one's own"))
		s.NoError(err)
		r, err := s.s.OpenBlob(s.ctx, s.key(s.blob))
		s.Equal("one's own", string(s.readAll(r, err)))
	},
	"DropBlob": func(s *stranger) { s.NoError(s.s.DropBlob(s.ctx, s.key(s.blob))) },
	"OpenBlob": func(s *stranger) {
		_, err := s.s.OpenBlob(s.ctx, s.key(s.blob))
		s.requireNotFound(err)
	},
	"PutBundle": func(s *stranger) {
		_, err := s.s.PutBundle(s.ctx, s.key(s.building.ID), s.digest, bytes.NewReader([]byte("a bundle of theirs")), 1<<20)
		s.NoError(err)
	},
	"NamesBundle": func(s *stranger) {
		s.requireNotFound(s.s.NamesBundle(s.ctx, s.key(s.environment.ID), s.digest))
	},
	"OpenBundle": func(s *stranger) {
		_, err := s.s.OpenBundle(s.ctx, s.project, s.digest)
		s.requireNotFound(err)
	},
	"PutUpload": func(s *stranger) {
		u, err := s.s.PutUpload(s.ctx, s.project, strings.NewReader("an upload of theirs"), 1<<20)
		s.NoError(err)
		s.Equal(s.uploaded, u.Digest)
	},
	"HasUpload": func(s *stranger) { s.requireNotFound(s.s.HasUpload(s.ctx, s.project, s.uploaded)) },
	"OpenUpload": func(s *stranger) {
		_, err := s.s.OpenUpload(s.ctx, s.key(s.building.ID))
		s.requireNotFound(err)
	},
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
