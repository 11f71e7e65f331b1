// SPDX-License-Identifier: Apache-2.0

// Package deployments serves deployments, uploads and build logs.
package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// API serves deployments.
type API struct {
	Service *rest.Service
	Store   Store
	Costs   *costs.Reader
	// Uploads limits the uploads in progress.
	Uploads *quota.SlotSet
}

// Store has the methods of the store that deployments use.
type Store interface {
	store.Catalog
	store.Deployments
	store.Builds
	// OpenBundle is a method of store.Bundles.
	OpenBundle(ctx context.Context, projectID uuid.UUID, digest string) (io.ReadCloser, error)
	// PutUpload and HasUpload are methods of store.Uploads.
	PutUpload(ctx context.Context, projectID uuid.UUID, r io.Reader, limit int64) (store.Upload, error)
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
}

// Section has the endpoints of deployments; API serves them.
var Section = rest.Section[*API]{
	Name: "deployments", Doc: "Versions of the code that were built for an environment.",
	Endpoints: []rest.EndpointOf[*API]{
		listDeployments, getDeployment, createDeployment, uploadDeployment, listTestRuns, streamDeploymentLogs,
		cancelDeployment, activateDeployment, redeploy, deployAnyway,
	},
}

// DeploymentSummary has the common fields of DeploymentItem and Deployment.
type DeploymentSummary struct {
	ID                   string                     `json:"id" format:"uuid" doc:"The deployment's ID."`
	EnvironmentID        string                     `json:"environment_id" format:"uuid" doc:"The deployment's environment."`
	Status               DeploymentStatus           `json:"status" doc:"The status."`
	Phase                rest.Null[DeploymentPhase] `json:"phase" doc:"The phase of a building deployment; else null."`
	FailureReason        rest.Null[FailureReason]   `json:"failure_reason" doc:"Why the deployment failed; else null."`
	Message              *string                    `json:"message" doc:"Explains the status."`
	Source               DeploymentSource           `json:"source" doc:"The source of the code."`
	IsLive               bool                       `json:"is_live" doc:"Whether the deployment is live in its environment."`
	SkipTests            bool                       `json:"skip_tests" doc:"Whether the test phase is left out."`
	SkipFailedConnectors bool                       `json:"skip_failed_connectors" doc:"Whether connectors that cannot be applied stay as they are."`
	RedeployOf           *string                    `json:"redeploy_of" format:"uuid" doc:"The deployment whose source this one repeats."`
	BuildLogs            *string                    `json:"build_logs" doc:"The build log; null in lists."`
	TestResults          []TestResult               `json:"test_results" nullable:"true" doc:"The results of the test phase; null in lists."`
	ConnectorResults     []ConnectorResult          `json:"connector_results" doc:"The outcome for each connector of the code."`
	Agents               []DeploymentAgent          `json:"agents" doc:"The agents of the deployment."`
	CreatedAt            time.Time                  `json:"created_at" doc:"When the deployment was requested."`
	StartedAt            *time.Time                 `json:"started_at" doc:"When the build started."`
	EndedAt              *time.Time                 `json:"ended_at" doc:"When the status became final."`
	ActivatedAt          *time.Time                 `json:"activated_at" doc:"When the deployment last became live."`
}

// Deployment is the REST shape of a deployment.
type Deployment struct {
	DeploymentSummary
	CommitStatus rest.Null[CommitStatus] `json:"commit_status" doc:"The commit status at the Git provider; null if none was reported yet, and once the Kubernetes object of the deployment is deleted."`
}

func (Deployment) Doc() string {
	return "A version of the project's code that was built for an environment, with its outcome."
}

// DeploymentItem is the REST shape of a deployment in lists.
type DeploymentItem struct {
	DeploymentSummary
	FailedTestCount int `json:"failed_test_count" doc:"How many test cases failed."`
}

func (DeploymentItem) Doc() string { return "A deployment in a list." }

// DeploymentSource is the source of the code.
type DeploymentSource struct {
	Type          SourceType `json:"type" doc:"The type of the source."`
	Branch        *string    `json:"branch" doc:"The branch or tag of the build: the requested one, else the environment's, else the repository's default branch. Null before the build has fetched it, and for uploads." example:"main"`
	Commit        *string    `json:"commit" doc:"The commit of the build, as far as known." example:"4b825dc642cb6eb9a060e54bf8d69288fbee4904"`
	Digest        *string    `json:"digest" doc:"The SHA-256 digest of the upload; null for Git." example:"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"`
	CommitMessage *string    `json:"commit_message" doc:"The commit's message."`
	Author        *string    `json:"author" doc:"The commit's author."`
}

func (DeploymentSource) Doc() string { return "The source of a deployment's code." }

// DeploymentAgent is an agent of a deployment.
type DeploymentAgent struct {
	Name        string  `json:"name" doc:"The agent's name." example:"support"`
	Description *string `json:"description" doc:"The agent's purpose."`
	Type        string  `json:"type" doc:"The agent's type." example:"llm"`
	SourcePath  string  `json:"source_path" doc:"The agent's file in the repository." example:"agents/support.yaml"`
	VariantOf   *string `json:"variant_of" doc:"The agent whose A/B variant this is; null if it is no variant."`
}

func (DeploymentAgent) Doc() string { return "An agent of a deployment." }

// CommitStatus is the commit status of a deployment at the Git provider.
type CommitStatus struct {
	State rest.Null[CommitState] `json:"state" doc:"The last state that the provider accepted; null if there is none."`
	Error *string                `json:"error" doc:"Why the current state was not reported; null if it was."`
}

func (CommitStatus) Doc() string { return "The commit status at the Git provider." }

// TestResult is the result of a test case.
type TestResult struct {
	ID               string                      `json:"id" format:"uuid" doc:"The result's ID."`
	AgentName        string                      `json:"agent_name" doc:"The tested agent." example:"support"`
	TestName         string                      `json:"test_name" doc:"The test case's name." example:"greets"`
	Passed           bool                        `json:"passed" doc:"Whether enough runs were as expected."`
	Successes        int                         `json:"successes" doc:"Number of runs that were as expected."`
	Runs             int                         `json:"runs" doc:"Number of runs."`
	SuccessThreshold float64                     `json:"success_threshold" doc:"The share of runs that must be as expected, 0 to 1."`
	FailureReason    *string                     `json:"failure_reason" doc:"The expected and the actual result, if the test failed."`
	AgentRunIDs      []string                    `json:"agent_run_ids" format:"uuid" doc:"The agent runs; empty in this release, because test runs exist only in the build."`
	DurationMS       int64                       `json:"duration_ms" doc:"Total duration of the runs in milliseconds."`
	TokenUsage       rest.Null[costs.TokenUsage] `json:"token_usage" doc:"Model tokens of the runs; null if they were not counted."`
	costs.Costing
}

func (TestResult) Doc() string { return "The result of a test case of a deployment." }

// ConnectorResult is the outcome of a deployment for a connector in its code.
type ConnectorResult struct {
	Connector   string          `json:"connector" doc:"The connector's file without its extension." example:"tickets"`
	ConnectorID *string         `json:"connector_id" format:"uuid" doc:"The connector's ID; null if the environment is deleted, or if the environment has no such connector because it failed or was skipped."`
	Action      ConnectorAction `json:"action" doc:"The action on the connector."`
	Error       *string         `json:"error" doc:"Why the action failed; else null."`
}

func (ConnectorResult) Doc() string {
	return "The outcome of a deployment for a connector of the project's code."
}

func (d Deployment) Audited() store.AuditObject {
	return store.AuditObject{Kind: "deployment", ID: d.ID}
}

// DeploymentPath names a deployment.
type DeploymentPath struct {
	rest.ProjectPath
	DeploymentID rest.ID `path:"deployment_id" resource:"deployment" doc:"The deployment."`
}

var listDeployments = rest.Handle((*API).listDeployments, rest.Endpoint{
	Method: rest.Get, Path: "/deployments", ID: "listDeployments",
	Permissions: rest.Requires("deployments.view"), Errors: rest.ReadErrors,
	Summary: "List deployments",
	Doc: "Returns the newest deployments first, at most 500. Items have no build log, test results or commit status. Keys that " +
		"reach all environments can also list the deployments of a deleted environment.",
	Example: rest.Example{Path: "/deployments?environment_id={environment}"},
})

func (s *API) listDeployments(ctx context.Context, c *rest.Caller, in *rest.EnvironmentQuery) (rest.Response[[]DeploymentItem], error) {
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	var list []store.Deployment
	var open openDeployments
	switch {
	case rest.IsNotFound(err) && c.ReachesAll():
		list, err = s.deploymentsOfDeleted(ctx, c, in.EnvironmentID, err)
	case err == nil:
		list, open, err = s.deploymentsOf(ctx, c, environment)
	}
	if err != nil {
		return rest.Response[[]DeploymentItem]{}, err
	}
	place, err := s.stored(ctx, c.RowKey(in.EnvironmentID))
	if err != nil {
		return rest.Response[[]DeploymentItem]{}, err
	}
	return rest.NewResponse(rest.ShowAll(list, func(d store.Deployment) DeploymentItem {
		item := DeploymentItem{DeploymentSummary: showDeployment(d, place).DeploymentSummary, FailedTestCount: d.FailedTestCount}
		item.explain(d, open[d.ID])
		item.TestResults = nil
		return item
	}), nil)
}

var getDeployment = rest.Handle((*API).getDeployment, rest.Endpoint{
	Method: rest.Get, Path: "/deployments/{deployment_id}", ID: "getDeployment",
	Permissions: rest.Requires("deployments.view"), Errors: rest.ReadErrors,
	Summary: "Get a deployment",
	Doc: "Returns the deployment with its build log and all results. While the deployment is open, `message` says what the " +
		"deployment waits for or does.",
	Example: rest.Example{Path: "/deployments/{deployment}"},
})

func (s *API) getDeployment(ctx context.Context, c *rest.Caller, in *DeploymentPath) (rest.Response[Deployment], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	return rest.NewResponse(s.wholeDeployment(ctx, c, d))
}

// wholeDeployment returns a deployment with its log, and with the reason if it waits.
func (s *API) wholeDeployment(ctx context.Context, c *rest.Caller, d store.Deployment) (Deployment, error) {
	environment, err := s.stored(ctx, d.Environment())
	if err != nil {
		return Deployment{}, err
	}
	shown := showDeployment(d, environment)
	logs, err := s.Store.BuildLog(ctx, d.Key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Deployment{}, fmt.Errorf("reading the log of deployment %s: %w", d.ID, err)
	}
	shown.BuildLogs = &logs
	if d.Status.Terminal() && d.ResolvedCommit == "" {
		return shown, nil // its object has nothing to add
	}
	o := s.objectIfAvailable(ctx, c, d)
	shown.explain(d, o)
	shown.CommitStatus.Value = showCommitStatus(o)
	return shown, nil
}

// explain returns what an open deployment does or waits for, from the conditions of its object. It ignores an object
// that is nil or older than the store.
func (s *DeploymentSummary) explain(d store.Deployment, o *v1alpha1.Deployment) {
	if s.Message != nil || d.Status.Terminal() || o == nil {
		return
	}
	s.Message = rest.Optional(rest.NotReadyMessage(o))
	if step := v1alpha1.DeploymentStepOf(string(d.Phase)); step != o.Status.Step && step != "" {
		s.Message = rest.Optional(step.Doing())
	}
}

// showCommitStatus returns the commit status in the object of a deployment, which can be nil.
func showCommitStatus(o *v1alpha1.Deployment) *CommitStatus {
	if o == nil || o.Status.CommitStatus == nil {
		return nil
	}
	told, out := o.Status.CommitStatus, &CommitStatus{State: rest.OptionalWord[CommitState](strings.ToLower(o.Status.CommitStatus.State))}
	if told.Reason != v1alpha1.CommitStatusReported {
		out.Error = &told.Message
	}
	return out
}

// place has the rows of the environment of deployments and the IDs of its connectors.
type place struct {
	store.Environment
	connectors []uuid.UUID
}

// stored returns the rows of an environment, or an empty place if it was deleted.
func (s *API) stored(ctx context.Context, environment store.Key) (p place, err error) {
	p.Environment, err = s.Store.Environment(ctx, environment)
	if errors.Is(err, store.ErrNotFound) {
		return place{}, nil
	}
	if err != nil {
		return p, fmt.Errorf("reading environment %s: %w", environment, err)
	}
	if p.connectors, err = s.Store.ConnectorsOf(ctx, environment); err != nil {
		return p, fmt.Errorf("reading the connectors of environment %s: %w", environment, err)
	}
	return p, nil
}

// showDeployment returns the REST shape. In an empty place no deployment is live.
func showDeployment(d store.Deployment, environment place) Deployment {
	live := environment.LiveDeploymentID
	commit := d.ResolvedCommit
	if commit == "" {
		commit = d.Commit
	}
	out := Deployment{DeploymentSummary: DeploymentSummary{
		ID: d.ID.String(), EnvironmentID: d.EnvironmentID.String(), Status: DeploymentStatus(d.Status),
		Phase:         rest.OptionalWord[DeploymentPhase](d.Phase),
		FailureReason: rest.OptionalWord[FailureReason](d.FailureReason), Message: rest.Optional(d.Message), IsLive: live != nil && *live == d.ID,
		Source: DeploymentSource{
			Type: SourceType(d.SourceType), Branch: rest.Optional(d.Branch), Commit: rest.Optional(commit), Digest: rest.Optional(d.UploadDigest),
			CommitMessage: rest.Optional(d.CommitMessage), Author: rest.Optional(d.Author),
		},
		SkipTests: d.SkipTests, SkipFailedConnectors: d.SkipFailedConnectors, RedeployOf: rest.OptionalID(d.RedeployOf),
		TestResults: testResults(costs.Exchange{}, recordedResults(d.TestResults)), ConnectorResults: connectorResults(d, environment),
		Agents: make([]DeploymentAgent, 0, len(d.Agents)), CreatedAt: d.CreatedAt.UTC(),
		StartedAt: rest.OptionalTime(d.StartedAt), EndedAt: rest.OptionalTime(d.EndedAt), ActivatedAt: rest.OptionalTime(d.ActivatedAt),
	}}
	for _, a := range d.Agents {
		out.Agents = append(out.Agents, DeploymentAgent{
			Name: a.Name, Description: rest.Optional(a.Description), Type: a.Type, SourcePath: a.SourcePath, VariantOf: rest.Optional(a.VariantOf),
		})
	}
	return out
}

// connectorResults returns the outcomes for the connectors in the code of a deployment, with their IDs in the
// environment. A connector that failed has an ID if it existed before.
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
			r.ConnectorID = rest.Optional(id.String())
		}
	}
	return out
}

// recorded returns a recorded list in its REST shape, or an empty list. A build writes the record, so items with another
// shape are dropped.
func recorded[T any](list json.RawMessage) []T {
	out := []T{}
	if len(list) == 0 || json.Unmarshal(list, &out) != nil || out == nil {
		return []T{}
	}
	return out
}

func (i *DeploymentItem) Texts() []*string { return i.DeploymentSummary.Texts() }

func (d *Deployment) Texts() []*string { return d.DeploymentSummary.Texts() }

func (d *DeploymentSummary) Texts() []*string {
	out := rest.PresentTexts(d.Message)
	for i := range d.ConnectorResults {
		out = append(out, rest.PresentTexts(d.ConnectorResults[i].Error)...)
	}
	return out
}

// Enums are types of their own, so that the description has each of them once. Clients must accept new values.

// DeploymentStatus is the status of a deployment.
type DeploymentStatus string

func (DeploymentStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "DeploymentStatus", "The status of a deployment. deployed, failed and cancelled are final.",
		"pending", "building", "deployed", "failed", "cancelled")
}

// DeploymentPhase is the phase of a building deployment.
type DeploymentPhase string

func (DeploymentPhase) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "DeploymentPhase", "The phase of a building deployment.", "fetching", "packing", "testing", "connecting")
}

// FailureReason is the reason of a failed deployment.
type FailureReason string

func (FailureReason) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "FailureReason", "Why a deployment failed. model_provider_missing: an agent names a model whose provider the "+
		"project does not have. store_restored: it is newer than the backup that the store was restored from.",
		"build_failed", "tests_failed", "model_provider_missing", "connectors_failed", "deadline_exceeded", "store_restored")
}

// CommitState is the state of a commit at the Git provider.
type CommitState string

func (CommitState) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "CommitState", "The state of a commit at the Git provider.", "pending", "success", "failure", "error")
}

// SourceType is the source of the code of a deployment.
type SourceType string

func (SourceType) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "SourceType", "The source of a deployment's code.", "git", "upload")
}

// ConnectorAction is the action of a deployment on a connector.
type ConnectorAction string

func (ConnectorAction) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "ConnectorAction", "The action of a deployment on a connector of its code.",
		"created", "updated", "unchanged", "retired", "skipped", "failed")
}
