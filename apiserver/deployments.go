// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Deployment is the REST shape of a deployment.
type Deployment struct {
	ID                   string            `json:"id" format:"uuid"`
	EnvironmentID        string            `json:"environment_id" format:"uuid"`
	Status               string            `json:"status" enum:"pending,building,deployed,failed,cancelled"`
	Phase                *string           `json:"phase" doc:"What a building one is at: fetching, packing, testing, connecting."`
	FailureReason        *string           `json:"failure_reason" doc:"build_failed, tests_failed, connectors_failed or deadline_exceeded."`
	Message              *string           `json:"message" doc:"Explains the status."`
	Source               DeploymentSource  `json:"source"`
	IsLive               bool              `json:"is_live"`
	SkipTests            bool              `json:"skip_tests"`
	SkipFailedConnectors bool              `json:"skip_failed_connectors"`
	RedeployOf           *string           `json:"redeploy_of" format:"uuid"`
	BuildLogs            *string           `json:"build_logs" doc:"null in lists."`
	TestResults          any               `json:"test_results" doc:"null in lists."`
	ConnectorResults     any               `json:"connector_results"`
	Agents               []DeploymentAgent `json:"agents" nullable:"false"`
	CreatedAt            time.Time         `json:"created_at"`
	StartedAt            *time.Time        `json:"started_at"`
	EndedAt              *time.Time        `json:"ended_at"`
	ActivatedAt          *time.Time        `json:"activated_at"`
}

// DeploymentItem is the REST shape of a deployment in lists.
type DeploymentItem struct {
	Deployment
	FailedTestCount int `json:"failed_test_count"`
}

// DeploymentSource says where the code came from.
type DeploymentSource struct {
	Type          string  `json:"type" enum:"git,upload"`
	Branch        *string `json:"branch"`
	Commit        *string `json:"commit"`
	CommitMessage *string `json:"commit_message"`
	Author        *string `json:"author"`
}

// DeploymentAgent is an agent of a deployment.
type DeploymentAgent struct {
	Name        string  `json:"name"`
	Description *string `json:"description"`
	Type        string  `json:"type"`
	SourcePath  string  `json:"source_path"`
	VariantOf   *string `json:"variant_of"`
}

// DeploymentPath names a deployment.
type DeploymentPath struct {
	ProjectPath
	DeploymentID string `path:"deployment_id" format:"uuid"`
}

func (s *Server) listDeployments(ctx context.Context, c *caller, in *EnvironmentQuery) ([]DeploymentItem, error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return nil, err
	}
	list, err := s.store.ListDeployments(ctx, c.keyOf(environment))
	if err != nil {
		return nil, fmt.Errorf("listing the deployments of environment %q: %w", environment.Name, err)
	}
	live, err := s.live(ctx, c.keyOf(environment))
	if err != nil {
		return nil, err
	}
	out := make([]DeploymentItem, 0, len(list))
	for _, d := range list {
		item := DeploymentItem{Deployment: showDeployment(d, live), FailedTestCount: d.FailedTestCount}
		item.TestResults = nil
		out = append(out, item)
	}
	return out, nil
}

func (s *Server) getDeployment(ctx context.Context, c *caller, in *DeploymentPath) (Deployment, error) {
	id, err := uuid.Parse(in.DeploymentID)
	if err != nil {
		return Deployment{}, notFound("deployment")
	}
	d, err := s.store.Deployment(ctx, c.row(id))
	if errors.Is(err, store.ErrNotFound) {
		return Deployment{}, notFound("deployment")
	}
	if err != nil {
		return Deployment{}, fmt.Errorf("reading deployment %s: %w", id, err)
	}
	if err := s.mustReachID(ctx, c, d.EnvironmentID.String()); err != nil {
		return Deployment{}, err
	}
	live, err := s.live(ctx, d.Environment())
	if err != nil {
		return Deployment{}, err
	}
	shown := showDeployment(d, live)
	logs, err := s.store.BuildLog(ctx, d.Key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Deployment{}, fmt.Errorf("reading the log of deployment %s: %w", id, err)
	}
	shown.BuildLogs = &logs
	return shown, nil
}

// live is the live deployment of an environment, or nil.
func (s *Server) live(ctx context.Context, environment store.Key) (*uuid.UUID, error) {
	e, err := s.store.Environment(ctx, environment)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading environment %s: %w", environment, err)
	}
	return e.LiveDeploymentID, nil
}

func showDeployment(d store.Deployment, live *uuid.UUID) Deployment {
	commit := d.ResolvedCommit
	if commit == "" {
		commit = d.Commit
	}
	out := Deployment{
		ID: d.ID.String(), EnvironmentID: d.EnvironmentID.String(), Status: string(d.Status), Phase: opt(d.Phase),
		FailureReason: opt(d.FailureReason), Message: opt(d.Message), IsLive: live != nil && *live == d.ID,
		Source: DeploymentSource{
			Type: d.SourceType, Branch: opt(d.Branch), Commit: opt(commit),
			CommitMessage: opt(d.CommitMessage), Author: opt(d.Author),
		},
		SkipTests: d.SkipTests, SkipFailedConnectors: d.SkipFailedConnectors, RedeployOf: optID(d.RedeployOf),
		TestResults: orEmpty(d.TestResults), ConnectorResults: orEmpty(d.ConnectorResults),
		Agents: make([]DeploymentAgent, 0, len(d.Agents)), CreatedAt: d.CreatedAt.UTC(),
		StartedAt: optTime(d.StartedAt), EndedAt: optTime(d.EndedAt), ActivatedAt: optTime(d.ActivatedAt),
	}
	for _, a := range d.Agents {
		out.Agents = append(out.Agents, DeploymentAgent{
			Name: a.Name, Description: opt(a.Description), Type: a.Type, SourcePath: a.SourcePath, VariantOf: opt(a.VariantOf),
		})
	}
	return out
}

// orEmpty is the recorded list, or an empty one.
func orEmpty(list json.RawMessage) any {
	if len(list) == 0 || string(list) == "null" {
		return []any{}
	}
	return list
}
