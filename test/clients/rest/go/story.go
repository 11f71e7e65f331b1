// SPDX-License-Identifier: Apache-2.0

// Command story manages a project by a generated client: AGENTPLATFORM_SERVER,
// AGENTPLATFORM_PROJECT and AGENTPLATFORM_API_KEY say of what, the argument is a folder to
// deploy. The default environment has an agent, and runs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	api "example.com/shop/agentplatform"
)

// story is a project and how it is managed.
type story struct {
	*api.ClientWithResponses
	project uuid.UUID
	// folder is deployed.
	folder string
}

// answer is that of any call.
type answer interface {
	StatusCode() int
	GetBody() []byte
}

func main() {
	client, err := api.NewClientWithResponses(os.Getenv("AGENTPLATFORM_SERVER"), api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("AGENTPLATFORM_API_KEY"))
		return nil
	}))
	must(err)
	s := &story{client, uuid.MustParse(os.Getenv("AGENTPLATFORM_PROJECT")), os.Args[1]}
	ctx := context.Background()
	standard, agent := s.agent(ctx)
	environment := s.environment(ctx)
	s.variables(ctx, environment)
	connector, link := s.connector(ctx, environment, agent)
	s.runs(ctx, standard)
	s.deployment(ctx, environment)
	s.remove(ctx, environment, connector, link)
	fmt.Println("done")
}

// must ends the story where something went wrong.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "story:", err)
		os.Exit(1)
	}
}

// check ends the story where something is not so.
func check(holds bool, what string, about ...any) {
	if !holds {
		must(fmt.Errorf(what, about...))
	}
}

// ok is what a success holds.
func ok[T any](body *T, a answer, err error) T {
	must(err)
	check(body != nil, "%d: %s", a.StatusCode(), a.GetBody())
	return *body
}

// refused is the problem that an answer must be.
func refused(status int, code string, a answer, err error) (p api.Problem) {
	must(err)
	check(a.StatusCode() == status, "%d instead of %d: %s", a.StatusCode(), status, a.GetBody())
	must(json.Unmarshal(a.GetBody(), &p))
	check(p.Code == code && p.Status == int64(status), "%+v instead of %s", p, code)
	return p
}

// agent is one that is live in the default environment.
func (s *story) agent(ctx context.Context) (standard uuid.UUID, name string) {
	listed, err := s.ListEnvironmentsWithResponse(ctx, s.project)
	environments := ok(listed.JSON200, listed, err)
	i := slices.IndexFunc(environments, func(e api.Environment) bool { return e.IsDefault })
	check(i >= 0, "there is no default environment")
	standard = environments[i].Id
	found, err := s.ListAgentsWithResponse(ctx, s.project, &api.ListAgentsParams{EnvironmentId: standard})
	agents := ok(found.JSON200, found, err)
	check(len(agents) > 0, "no agent is live")
	one, err := s.GetAgentWithResponse(ctx, s.project, agents[0].Name, &api.GetAgentParams{EnvironmentId: standard})
	details := ok(one.JSON200, one, err)
	check(details.Name == agents[0].Name, "another agent: %s", details.Name)
	return standard, details.Name
}

// environment makes one, once for each key.
func (s *story) environment(ctx context.Context) uuid.UUID {
	key := uuid.NewString()
	creation := api.EnvironmentCreate{
		Name: "Go " + key[:8], GitBranch: nullable.NewNullableWithValue("main"),
		Settings: &api.EnvironmentSettingsInput{Runner: &api.RunnerSettingsInput{MaxReplicas: nullable.NewNullNullable[int32]()}},
	}
	first, err := s.CreateEnvironmentWithResponse(ctx, s.project, &api.CreateEnvironmentParams{IdempotencyKey: &key}, creation)
	made := ok(first.JSON201, first, err)
	again, err := s.CreateEnvironmentWithResponse(ctx, s.project, &api.CreateEnvironmentParams{IdempotencyKey: &key}, creation)
	check(ok(again.JSON201, again, err).Id == made.Id, "two environments were made")
	check(made.Settings.Runner.MaxReplicas.IsNull(), "it scales: %+v", made.Settings)
	branch := api.EnvironmentUpdate{GitBranch: nullable.NewNullNullable[string]()}
	updated, err := s.UpdateEnvironmentWithResponse(ctx, s.project, made.Id, nil, branch)
	changed := ok(updated.JSON200, updated, err)
	check(changed.GitBranch.IsNull(), "the branch stays: %+v", changed)
	return made.Id
}

// variables are written, read without secrets, and sent back.
func (s *story) variables(ctx context.Context, environment uuid.UUID) {
	eu, hush, nothing := "eu-west-1", "hush", ""
	put, err := s.ReplaceVariablesWithResponse(ctx, s.project, environment, nil, []api.VariableInput{
		{Name: "REGION", Value: &eu}, {Name: "TOKEN", Value: &hush, Sensitive: true},
	})
	ok(put.JSON200, put, err)
	got, err := s.GetVariablesWithResponse(ctx, s.project, environment)
	read := ok(got.JSON200, got, err)
	check(len(read) == 2 && read[0].Value == eu && read[1].Value == "********" && read[1].SecretRef.IsNull(), "variables: %+v", read)
	var back []api.VariableInput
	for _, v := range read {
		again := api.VariableInput{Name: v.Name, Value: &v.Value, Sensitive: v.Sensitive}
		if ref, err := v.SecretRef.Get(); err == nil {
			again.SecretRef.Set(api.KeyOfInput(ref))
		}
		back = append(back, again)
	}
	put, err = s.ReplaceVariablesWithResponse(ctx, s.project, environment, nil, back)
	ok(put.JSON200, put, err)
	put, err = s.ReplaceVariablesWithResponse(ctx, s.project, environment, nil, []api.VariableInput{{Name: "lower", Value: &nothing}})
	problem := refused(http.StatusUnprocessableEntity, "invalid_request", put, err)
	check(problem.Errors[0].Location == "body[0].name", "%+v", problem)
}

// connector makes one with a link, and is refused what cannot be.
func (s *story) connector(ctx context.Context, environment uuid.UUID, agent string) (connector, link uuid.UUID) {
	seconds, mode, enabled := int32(30), api.ConnectorModeSync, true
	config := &api.ConnectorConfigInput{}
	must(config.FromSyncConfigInput(api.SyncConfigInput{TimeoutSeconds: &seconds}))
	first, err := s.CreateConnectorWithResponse(ctx, s.project, &api.CreateConnectorParams{EnvironmentId: environment},
		api.ConnectorCreate{Name: "Tickets", Type: api.ConnectorTypeWebhook, Mode: &mode, Config: config})
	made := ok(first.JSON201, first, err)
	how, err := made.Config.AsSyncConfig()
	must(err)
	check(how.TimeoutSeconds == int64(seconds) && how.Authentication == api.AuthenticationSecret, "config: %+v", how)
	check(made.WebhookUrl.IsSpecified() && !made.WebhookUrl.IsNull(), "it has no URL: %+v", made)
	tied, err := s.CreateLinkWithResponse(ctx, s.project, made.Id, nil, api.LinkCreate{AgentName: agent})
	link = ok(tied.JSON201, tied, err).Id
	off := false
	changed, err := s.UpdateConnectorWithResponse(ctx, s.project, made.Id, nil, api.ConnectorUpdate{Enabled: &off})
	ok(changed.JSON200, changed, err)
	stale, err := s.UpdateConnectorWithResponse(ctx, s.project, made.Id, &api.UpdateConnectorParams{IfMatch: first.Headers201.ETag}, api.ConnectorUpdate{Enabled: &enabled})
	refused(http.StatusPreconditionFailed, "precondition_failed", stale, err)
	nowhere, err := s.GetConnectorWithResponse(ctx, s.project, uuid.New())
	must(err)
	check(nowhere.ApplicationproblemJSON404 != nil, "%d: %s", nowhere.StatusCode(), nowhere.Body)
	check(nowhere.ApplicationproblemJSON404.Detail == "this project has no such connector", "%+v", nowhere.ApplicationproblemJSON404)
	return made.Id, link
}

// runs are read page by page, and one is cancelled.
func (s *story) runs(ctx context.Context, environment uuid.UUID) {
	var runs []api.Run
	one, params := int64(1), api.ListRunsParams{EnvironmentId: &environment}
	for params.Limit = &one; len(runs) < 2; {
		got, err := s.ListRunsWithResponse(ctx, s.project, &params)
		page := ok(got.JSON200, got, err)
		runs = append(runs, page.Items...)
		next, err := page.NextCursor.Get()
		if err != nil { // there is none
			break
		}
		params.Cursor = &next
	}
	check(len(runs) == 2 && runs[0].Id != runs[1].Id, "runs: %+v", runs)
	got, err := s.GetRunWithResponse(ctx, s.project, runs[0].Id)
	check(ok(got.JSON200, got, err).Input != nil, "the run has no input")
	end, err := s.CancelRunWithResponse(ctx, s.project, runs[0].Id, nil)
	must(err)
	check(end.JSON200 == nil || end.JSON200.Status == api.RunStatusCancelled, "cancelled: %s", end.Body)
	end, err = s.CancelRunWithResponse(ctx, s.project, runs[0].Id, nil)
	refused(http.StatusConflict, "conflict", end, err)
}

// remove takes everything away, which the audit log has.
func (s *story) remove(ctx context.Context, environment, connector, link uuid.UUID) {
	unlinked, err := s.DeleteLinkWithResponse(ctx, s.project, connector, link, nil)
	ok(unlinked.JSON200, unlinked, err)
	disconnected, err := s.DeleteConnectorWithResponse(ctx, s.project, connector, nil)
	ok(disconnected.JSON200, disconnected, err)
	deleted, err := s.DeleteEnvironmentWithResponse(ctx, s.project, environment, nil)
	ok(deleted.JSON200, deleted, err)
	one := int64(1)
	got, err := s.ListAuditLogWithResponse(ctx, s.project, &api.ListAuditLogParams{Limit: &one})
	log := ok(got.JSON200, got, err)
	check(len(log.Items) == 1 && log.Items[0].Operation == "deleteEnvironment", "%+v", log)
}
