// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// DeploymentSummary is what lists and single reads of deployments have in common.
type DeploymentSummary struct {
	ID                   string                `json:"id" format:"uuid" doc:"The deployment's id."`
	EnvironmentID        string                `json:"environment_id" format:"uuid" doc:"The environment that it is for."`
	Status               DeploymentStatus      `json:"status" doc:"Where it stands."`
	Phase                Null[DeploymentPhase] `json:"phase" doc:"What a building one is at; else null."`
	FailureReason        Null[FailureReason]   `json:"failure_reason" doc:"Why it failed; else null."`
	Message              *string               `json:"message" doc:"Explains the status."`
	Source               DeploymentSource      `json:"source" doc:"Where the code came from."`
	IsLive               bool                  `json:"is_live" doc:"Whether it is the one that runs in its environment."`
	SkipTests            bool                  `json:"skip_tests" doc:"Whether the test phase is left out."`
	SkipFailedConnectors bool                  `json:"skip_failed_connectors" doc:"Whether connectors that fail to apply are left as they are."`
	RedeployOf           *string               `json:"redeploy_of" format:"uuid" doc:"The deployment whose source it repeats."`
	BuildLogs            *string               `json:"build_logs" doc:"What the build has written; null in lists."`
	TestResults          []TestResult          `json:"test_results" nullable:"true" doc:"The results of the test phase; null in lists."`
	ConnectorResults     []ConnectorResult     `json:"connector_results" doc:"What became of the connectors in the code."`
	Agents               []DeploymentAgent     `json:"agents" doc:"The agents that it contains."`
	CreatedAt            time.Time             `json:"created_at" doc:"When it was asked for."`
	StartedAt            *time.Time            `json:"started_at" doc:"When the build began."`
	EndedAt              *time.Time            `json:"ended_at" doc:"When its status became final."`
	ActivatedAt          *time.Time            `json:"activated_at" doc:"When it last went live."`
}

// Deployment is the REST shape of a deployment.
type Deployment struct {
	DeploymentSummary
	CommitStatus Null[CommitStatus] `json:"commit_status" doc:"What the repository's provider was told of the commit; null while nobody tried to tell it, and once the object of the deployment is gone."`
}

// DeploymentItem is the REST shape of a deployment in lists.
type DeploymentItem struct {
	DeploymentSummary
	FailedTestCount int `json:"failed_test_count" doc:"How many test cases failed."`
}

// DeploymentSource says where the code came from.
type DeploymentSource struct {
	Type          SourceType `json:"type" doc:"Where the code came from."`
	Branch        *string    `json:"branch" doc:"The branch or tag that is built: the one that was asked for, else the environment's, else the repository's default branch, once the build has fetched it; null before, and of an upload." example:"main"`
	Commit        *string    `json:"commit" doc:"The commit that is built, as far as known." example:"4b825dc642cb6eb9a060e54bf8d69288fbee4904"`
	Digest        *string    `json:"digest" doc:"What was uploaded, by its SHA-256; null of what came from git." example:"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"`
	CommitMessage *string    `json:"commit_message" doc:"The commit's message."`
	Author        *string    `json:"author" doc:"The commit's author."`
}

// DeploymentAgent is an agent of a deployment.
type DeploymentAgent struct {
	Name        string  `json:"name" doc:"The agent's name." example:"support"`
	Description *string `json:"description" doc:"What it is for."`
	Type        string  `json:"type" doc:"Its type." example:"llm"`
	SourcePath  string  `json:"source_path" doc:"Its file in the repository." example:"agents/support.yaml"`
	VariantOf   *string `json:"variant_of" doc:"The agent of which it is an A/B variant."`
}

// CommitStatus is what a repository's provider was told of a deployment's commit.
type CommitStatus struct {
	State Null[CommitState] `json:"state" doc:"The last state that the provider has taken; null: none."`
	Error *string           `json:"error" doc:"Why the provider was not told of the deployment's state of now; null where it was."`
}

// TestResult is what became of a test case.
type TestResult struct {
	ID               string           `json:"id" format:"uuid" doc:"The result's id."`
	AgentName        string           `json:"agent_name" doc:"The agent that was tested." example:"support"`
	TestName         string           `json:"test_name" doc:"The test case's name." example:"greets"`
	Passed           bool             `json:"passed" doc:"Whether enough of its runs were as expected."`
	Successes        int              `json:"successes" doc:"How many were."`
	Runs             int              `json:"runs" doc:"How many there were."`
	SuccessThreshold float64          `json:"success_threshold" doc:"Which share of them is enough, 0 to 1."`
	FailureReason    *string          `json:"failure_reason" doc:"What was not as expected."`
	AgentRunIDs      []string         `json:"agent_run_ids" format:"uuid" doc:"The agent runs; empty in this release: what a test runs is kept in the build alone."`
	DurationMS       int64            `json:"duration_ms" doc:"How long they took together, in milliseconds."`
	TokenUsage       Null[TokenUsage] `json:"token_usage" doc:"Model tokens that they spent; null: not counted."`
	Costing
}

// ConnectorResult is what became of a connector that the code defines.
type ConnectorResult struct {
	Connector   string          `json:"connector" doc:"The connector's file without its ending." example:"tickets"`
	ConnectorID *string         `json:"connector_id" format:"uuid" doc:"The connector's id; null where the environment is gone, or has no such connector because it failed or was skipped."`
	Action      ConnectorAction `json:"action" doc:"What was done with it."`
	Error       *string         `json:"error" doc:"Why it failed; else null."`
}

func (d Deployment) audited() store.AuditObject {
	return store.AuditObject{Kind: "deployment", ID: d.ID}
}

// DeploymentPath names a deployment.
type DeploymentPath struct {
	ProjectPath
	DeploymentID ID `path:"deployment_id" doc:"The deployment."`
}

func (s *Server) listDeployments(ctx context.Context, c *caller, in *EnvironmentQuery) (answer[[]DeploymentItem], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	var list []store.Deployment
	var open openDeployments
	switch {
	case isNotFound(err) && c.reachesAll():
		list, err = s.pastDeployments(ctx, c, in.EnvironmentID, err)
	case err == nil:
		list, open, err = s.deploymentsOf(ctx, c, environment)
	}
	if err != nil {
		return answer[[]DeploymentItem]{}, err
	}
	place, err := s.stored(ctx, c.row(in.EnvironmentID))
	if err != nil {
		return answer[[]DeploymentItem]{}, err
	}
	out := make([]DeploymentItem, 0, len(list))
	for _, d := range list {
		item := DeploymentItem{DeploymentSummary: showDeployment(d, place).DeploymentSummary, FailedTestCount: d.FailedTestCount}
		item.explain(d, open[d.ID])
		item.TestResults = nil
		out = append(out, item)
	}
	return plainly(out, nil)
}

func (s *Server) getDeployment(ctx context.Context, c *caller, in *DeploymentPath) (answer[Deployment], error) {
	d, err := s.deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return answer[Deployment]{}, err
	}
	return plainly(s.wholeDeployment(ctx, c, d))
}

// wholeDeployment shows a deployment with its log, and what keeps one that is open.
func (s *Server) wholeDeployment(ctx context.Context, c *caller, d store.Deployment) (Deployment, error) {
	environment, err := s.stored(ctx, d.Environment())
	if err != nil {
		return Deployment{}, err
	}
	shown := showDeployment(d, environment)
	logs, err := s.store.BuildLog(ctx, d.Key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Deployment{}, fmt.Errorf("reading the log of deployment %s: %w", d.ID, err)
	}
	shown.BuildLogs = &logs
	if d.Status.Terminal() && d.ResolvedCommit == "" {
		return shown, nil // its object has nothing to add
	}
	o := s.objectSeen(ctx, c, d)
	shown.explain(d, o)
	shown.CommitStatus.Value = showCommitStatus(o)
	return shown, nil
}

// explain says of a deployment that is open what it is at or waits for: in the words of its object, nil if that is
// gone, unless the object is behind the store.
func (s *DeploymentSummary) explain(d store.Deployment, o *v1alpha1.Deployment) {
	if s.Message != nil || d.Status.Terminal() || o == nil {
		return
	}
	s.Message = opt(whyNotReady(o))
	if step := v1alpha1.DeploymentStepOf(string(d.Phase)); step != o.Status.Step && step != "" {
		s.Message = opt(step.Doing())
	}
}

// showCommitStatus is what the object of a deployment, nil where it is gone, says of its commit.
func showCommitStatus(o *v1alpha1.Deployment) *CommitStatus {
	if o == nil || o.Status.CommitStatus == nil {
		return nil
	}
	told, out := o.Status.CommitStatus, &CommitStatus{State: word[CommitState](strings.ToLower(o.Status.CommitStatus.State))}
	if told.Reason != v1alpha1.CommitStatusReported {
		out.Error = &told.Message
	}
	return out
}

// place is what the store has of the environment of deployments, with the ids of its connectors.
type place struct {
	store.Environment
	connectors []uuid.UUID
}

// stored is what the store has of an environment; nothing of one that is gone.
func (s *Server) stored(ctx context.Context, environment store.Key) (p place, err error) {
	p.Environment, err = s.store.Environment(ctx, environment)
	if errors.Is(err, store.ErrNotFound) {
		return place{}, nil
	}
	if err != nil {
		return p, fmt.Errorf("reading environment %s: %w", environment, err)
	}
	if p.connectors, err = s.store.ConnectorsOf(ctx, environment); err != nil {
		return p, fmt.Errorf("reading the connectors of environment %s: %w", environment, err)
	}
	return p, nil
}

// showDeployment is the REST shape; of an environment of which nothing is known none is live.
func showDeployment(d store.Deployment, environment place) Deployment {
	live := environment.LiveDeploymentID
	commit := d.ResolvedCommit
	if commit == "" {
		commit = d.Commit
	}
	out := Deployment{DeploymentSummary: DeploymentSummary{
		ID: d.ID.String(), EnvironmentID: d.EnvironmentID.String(), Status: DeploymentStatus(d.Status),
		Phase:         word[DeploymentPhase](d.Phase),
		FailureReason: word[FailureReason](d.FailureReason), Message: opt(d.Message), IsLive: live != nil && *live == d.ID,
		Source: DeploymentSource{
			Type: SourceType(d.SourceType), Branch: opt(d.Branch), Commit: opt(commit), Digest: opt(d.UploadDigest),
			CommitMessage: opt(d.CommitMessage), Author: opt(d.Author),
		},
		SkipTests: d.SkipTests, SkipFailedConnectors: d.SkipFailedConnectors, RedeployOf: optID(d.RedeployOf),
		TestResults: exchange{}.testResults(recordedResults(d.TestResults)), ConnectorResults: connectorResults(d, environment),
		Agents: make([]DeploymentAgent, 0, len(d.Agents)), CreatedAt: d.CreatedAt.UTC(),
		StartedAt: optTime(d.StartedAt), EndedAt: optTime(d.EndedAt), ActivatedAt: optTime(d.ActivatedAt),
	}}
	for _, a := range d.Agents {
		out.Agents = append(out.Agents, DeploymentAgent{
			Name: a.Name, Description: opt(a.Description), Type: a.Type, SourcePath: a.SourcePath, VariantOf: opt(a.VariantOf),
		})
	}
	return out
}

// connectorResults are what became of the connectors in the code of a deployment, with the ids that these
// have in its environment: also where one failed that is there from before, and not where it never was.
func connectorResults(d store.Deployment, environment place) []ConnectorResult {
	out := recorded[ConnectorResult](d.ConnectorResults)
	for i := range out {
		r := &out[i]
		if r.ConnectorID = nil; environment.Ref.Name == "" {
			continue
		}
		name := v1alpha1.CodeConnectorName(v1alpha1.EnvironmentName(environment.Ref.Name), r.Connector)
		id := v1alpha1.ProjectObjectID(d.ProjectID, store.KindConnector, name)
		if r.Action != "failed" && r.Action != "skipped" || slices.Contains(environment.connectors, id) {
			r.ConnectorID = opt(id.String())
		}
	}
	return out
}

// recorded is a list as it was recorded, in its REST shape; [] where there is none.
// A build writes it, so that it may hold anything: what is not of the shape is not shown.
func recorded[T any](list json.RawMessage) []T {
	out := []T{}
	if len(list) == 0 || json.Unmarshal(list, &out) != nil || out == nil {
		return []T{}
	}
	return out
}
