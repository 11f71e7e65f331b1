// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// goStory manages a project with the Go client of this repository. The default environment has a live agent and runs.
type goStory struct {
	*restclient.API
	t *testing.T
	// folder is deployed.
	folder string
}

func (s *goStory) run() {
	standard, agent := s.findAgent()
	environment := s.manageEnvironment()
	s.manageVariables(environment)
	connector, link := s.manageConnector(environment, agent)
	s.manageRuns(standard)
	s.manageDeployment(environment)
	s.deleteAll(environment, connector, link)
}

// requireProblem checks that an error is a problem with a status and a code.
func (s *goStory) requireProblem(status int64, code string, err error) restclient.Problem {
	s.t.Helper()
	var problem *restclient.ProblemError
	require.ErrorAs(s.t, err, &problem)
	require.Equal(s.t, status, problem.Status)
	require.Equal(s.t, code, problem.Code)
	return problem.Problem
}

// findAgent returns the default environment, and an agent that is live in it.
func (s *goStory) findAgent() (environment, name string) {
	s.t.Helper()
	environments, err := s.ListEnvironments(s.t.Context())
	require.NoError(s.t, err)
	i := slices.IndexFunc(environments.Value, func(e restclient.Environment) bool { return e.IsDefault })
	require.GreaterOrEqual(s.t, i, 0, "the default environment")
	environment = environments.Value[i].ID
	agents, err := s.ListAgents(s.t.Context(), &restclient.ListAgentsParams{EnvironmentID: environment})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, agents.Value)
	name = agents.Value[0].Name
	details, err := s.GetAgent(s.t.Context(), name, &restclient.GetAgentParams{EnvironmentID: environment})
	require.NoError(s.t, err)
	require.Equal(s.t, name, details.Value.Name)
	return environment, name
}

// manageEnvironment creates an environment once per idempotency key, and sets nullable fields to null.
func (s *goStory) manageEnvironment() (id string) {
	s.t.Helper()
	key := uuid.NewString()
	creation := restclient.EnvironmentCreate{
		Name: "Go " + key[:8], GitBranch: nullable.NewNullableWithValue("main"),
		Settings: &restclient.EnvironmentSettingsInput{Runner: &restclient.RunnerSettingsInput{MaxReplicas: nullable.NewNullNullable[int32]()}},
	}
	params := &restclient.CreateEnvironmentParams{IdempotencyKey: &key}
	created, err := s.CreateEnvironment(s.t.Context(), params, creation)
	require.NoError(s.t, err)
	again, err := s.CreateEnvironment(s.t.Context(), params, creation)
	require.NoError(s.t, err)
	require.Equal(s.t, created.Value.ID, again.Value.ID)
	require.True(s.t, created.Value.Settings.Runner.MaxReplicas.IsNull())
	changed, err := s.UpdateEnvironment(s.t.Context(), created.Value.ID, nil, restclient.EnvironmentUpdate{GitBranch: nullable.NewNullNullable[string]()})
	require.NoError(s.t, err)
	require.True(s.t, changed.Value.GitBranch.IsNull())
	return created.Value.ID
}

// manageVariables writes variables, reads them without secrets, and sends them back.
func (s *goStory) manageVariables(environment string) {
	s.t.Helper()
	_, err := s.ReplaceVariables(s.t.Context(), environment, nil, []restclient.VariableInput{
		{Name: "REGION", Value: new("eu-west-1")}, {Name: "TOKEN", Value: new("hush"), Sensitive: true},
	})
	require.NoError(s.t, err)
	known, err := s.GetVariables(s.t.Context(), environment)
	require.NoError(s.t, err)
	require.Len(s.t, known.Value, 2)
	require.Equal(s.t, "eu-west-1", known.Value[0].Value)
	require.Equal(s.t, "********", known.Value[1].Value)
	require.True(s.t, known.Value[1].SecretRef.IsNull())
	var back []restclient.VariableInput
	for _, v := range known.Value {
		back = append(back, restclient.VariableInput{Name: v.Name, Value: new(v.Value), Sensitive: v.Sensitive})
	}
	_, err = s.ReplaceVariables(s.t.Context(), environment, &restclient.ReplaceVariablesParams{IfMatch: &known.ETag}, back)
	require.NoError(s.t, err)
	_, err = s.ReplaceVariables(s.t.Context(), environment, nil, []restclient.VariableInput{{Name: "lower", Value: new("")}})
	problem := s.requireProblem(http.StatusUnprocessableEntity, "invalid_request", err)
	require.Equal(s.t, "body[0].name", problem.Errors[0].Location)
}

// manageConnector creates a connector with a link, and checks requests that are rejected.
func (s *goStory) manageConnector(environment, agent string) (connector, link string) {
	s.t.Helper()
	config := &restclient.ConnectorConfigInput{}
	require.NoError(s.t, config.FromSyncConfigInput(restclient.SyncConfigInput{TimeoutSeconds: new(int32(30))}))
	created, err := s.CreateConnector(s.t.Context(), &restclient.CreateConnectorParams{EnvironmentID: environment},
		restclient.ConnectorCreate{Name: "Tickets", Type: restclient.ConnectorTypeWebhook, Mode: new(restclient.ConnectorModeSync), Config: config})
	require.NoError(s.t, err)
	connector = created.Value.ID
	sync, err := created.Value.Config.AsSyncConfig()
	require.NoError(s.t, err)
	require.EqualValues(s.t, 30, sync.TimeoutSeconds)
	require.Equal(s.t, restclient.AuthenticationSecret, sync.Authentication)
	require.NotEmpty(s.t, restclient.ValueOf(created.Value.WebhookURL))
	linked, err := s.CreateLink(s.t.Context(), connector, nil, restclient.LinkCreate{AgentName: agent})
	require.NoError(s.t, err)
	_, err = s.UpdateConnector(s.t.Context(), connector, nil, restclient.ConnectorUpdate{Enabled: new(false)})
	require.NoError(s.t, err)
	_, err = s.UpdateConnector(s.t.Context(), connector, &restclient.UpdateConnectorParams{IfMatch: &created.ETag}, restclient.ConnectorUpdate{Enabled: new(true)})
	s.requireProblem(http.StatusPreconditionFailed, "precondition_failed", err)
	_, err = s.GetConnector(s.t.Context(), uuid.NewString())
	problem := s.requireProblem(http.StatusNotFound, "not_found", err)
	require.Equal(s.t, "this project has no such connector", problem.Detail)
	return connector, linked.Value.ID
}

// manageRuns reads runs page by page, and cancels one.
func (s *goStory) manageRuns(environment string) {
	s.t.Helper()
	params := restclient.ListRunsParams{EnvironmentID: &environment, Limit: new(int64(1))}
	var ids []string
	for len(ids) < 2 {
		page, err := s.ListRuns(s.t.Context(), &params)
		require.NoError(s.t, err)
		require.Len(s.t, page.Value.Items, 1)
		ids = append(ids, page.Value.Items[0].ID)
		params.Cursor = new(restclient.ValueOf(page.Value.NextCursor))
	}
	require.NotEqual(s.t, ids[0], ids[1])
	run, err := s.GetRun(s.t.Context(), ids[0])
	require.NoError(s.t, err)
	require.NotNil(s.t, run.Value.Input)
	cancelled, err := s.CancelRun(s.t.Context(), ids[0], nil)
	if err == nil { // The run may have ended.
		require.Equal(s.t, restclient.RunStatusCancelled, cancelled.Value.Status)
	}
	_, err = s.CancelRun(s.t.Context(), ids[0], nil)
	s.requireProblem(http.StatusConflict, "conflict", err)
}

// manageDeployment uploads the folder, and cancels its deployment.
func (s *goStory) manageDeployment(environment string) {
	s.t.Helper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	require.NoError(s.t, files.AddFS(os.DirFS(s.folder)))
	require.NoError(s.t, files.Close())
	require.NoError(s.t, compressed.Close())
	created, err := s.UploadDeployment(s.t.Context(), &restclient.UploadDeploymentParams{EnvironmentID: environment, SkipTests: new(true)},
		"application/gzip", bytes.NewReader(archive.Bytes()))
	require.NoError(s.t, err)
	require.Equal(s.t, restclient.SourceTypeUpload, created.Value.Source.Type)
	listed, err := s.ListDeployments(s.t.Context(), &restclient.ListDeploymentsParams{EnvironmentID: environment})
	require.NoError(s.t, err)
	require.Len(s.t, listed.Value, 1)
	require.Equal(s.t, created.Value.ID, listed.Value[0].ID)
	_, err = s.CancelDeployment(s.t.Context(), created.Value.ID, nil)
	require.NoError(s.t, err)
}

// deleteAll deletes the objects of the story. The audit log has the last call.
func (s *goStory) deleteAll(environment, connector, link string) {
	s.t.Helper()
	_, err := s.DeleteLink(s.t.Context(), connector, link, nil)
	require.NoError(s.t, err)
	_, err = s.DeleteConnector(s.t.Context(), connector, nil)
	require.NoError(s.t, err)
	_, err = s.DeleteEnvironment(s.t.Context(), environment, nil)
	require.NoError(s.t, err)
	log, err := s.ListAuditLog(s.t.Context(), &restclient.ListAuditLogParams{Limit: new(int64(1))})
	require.NoError(s.t, err)
	require.Len(s.t, log.Value.Items, 1)
	require.Equal(s.t, "deleteEnvironment", log.Value.Items[0].Operation)
}
