// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// sample is a call of a route that succeeds; {connector} stands for the id of one
// that exists.
type sample struct{ path, body string }

// samples are one call for each route that there is. Tests that hold something of
// every route go through them.
var samples = map[string]sample{
	"listEnvironments":      {"/environments", ""},
	"getEnvironment":        {"/environments/{environment}", ""},
	"createEnvironment":     {"/environments", `{"name":"CRM","git_branch":"main","settings":{"runner":{"min_replicas":2,"max_replicas":5,"limits":{"memory":"1Gi"}}}}`},
	"updateEnvironment":     {"/environments/{spare_environment}", `{"name":"CRM","git_branch":null}`},
	"deleteEnvironment":     {"/environments/{spare_environment}", ""},
	"setDefaultEnvironment": {"/environments/{spare_environment}/set-default", ""},
	"getVariables":          {"/environments/{environment}/variables", ""},
	"replaceVariables":      {"/environments/{spare_environment}/variables", `[{"name":"REGION","value":"eu","sensitive":false},{"name":"TOKEN","value":"hush","sensitive":true}]`},
	"holdTestSession":       {"/environments/{test_environment}/session", `{"holder":"anna","ttl_seconds":60}`},
	"endTestSession":        {"/environments/{test_environment}/session?holder=anna", ""},
	"listAgents":            {"/agents?environment_id={environment}", ""},
	"getAgent":              {"/agents/hello?environment_id={environment}", ""},
	"listDeployments":       {"/deployments?environment_id={environment}", ""},
	"getDeployment":         {"/deployments/{deployment}", ""},
	"createDeployment":      {"/deployments?environment_id={environment}", `{"branch":"main"}`},
	"uploadDeployment":      {"/deployments/upload?environment_id={environment}&skip_tests=true", anUpload},
	"listTestRuns":          {"/deployments/{deployment}/test-runs", ""},
	"streamDeploymentLogs":  {"/deployments/{deployment}/logs", ""},
	"cancelDeployment":      {"/deployments/{open_deployment}/cancel", ""},
	"activateDeployment":    {"/deployments/{deployment}/activate", ""},
	"redeploy":              {"/deployments/{deployment}/redeploy", ""},
	"deployAnyway":          {"/deployments/{failed_deployment}/deploy-anyway", ""},
	"createConnector":       {"/connectors?environment_id={environment}", `{"name":"CRM","type":"webhook","mode":"sync","config":{"timeout_seconds":30}}`},
	"listConnectors":        {"/connectors?environment_id={environment}", ""},
	"getConnector":          {"/connectors/{connector}", ""},
	"updateConnector":       {"/connectors/{connector}", `{"name":"CRM","enabled":false,"config":{"authentication":"secret"}}`},
	"rotateSecret":          {"/connectors/{connector}/rotate-secret", `{"grace_seconds":60}`},
	"testConnector":         {"/connectors/{receiver}/test", ""},
	"deleteConnector":       {"/connectors/{connector}", ""},
	"createLink":            {"/connectors/{connector}/links", `{"agent_name":"other"}`},
	"listLinks":             {"/connectors/{connector}/links", ""},
	"getLink":               {"/connectors/{connector}/links/{link}", ""},
	"updateLink":            {"/connectors/{connector}/links/{link}", `{"files_required":false}`},
	"deleteLink":            {"/connectors/{connector}/links/{link}", ""},
	"listConnectorRuns":     {"/connectors/{connector}/runs", ""},
	"getConnectorRun":       {"/connectors/{connector}/runs/{event}", ""},
	"getConnectorStats":     {"/connectors/{connector}/stats?time_range=24h", ""},
	"listRejections":        {"/connectors/{connector}/rejections", ""},
	"replayConnectorRun":    {"/connectors/{event_connector}/runs/{event}/replay", ""},
	"createReplay":          {"/connectors/{connector}/replays", `{"status":["failed"],"since":"2026-01-01T00:00:00Z"}`},
	"listReplays":           {"/connectors/{event_connector}/replays", ""},
	"getReplay":             {"/connectors/{event_connector}/replays/{replay}", ""},
	"cancelReplay":          {"/connectors/{event_connector}/replays/{replay}/cancel", ""},
	"listRuns":              {"/runs", ""},
	"getRun":                {"/runs/{run}", ""},
	"readRunFile":           {"/runs/{file_run}/files/0", ""},
	"cancelRun":             {"/runs/{open_run}/cancel", ""},
	"eraseRun":              {"/runs/{ended_run}", ""},
	"listAuditLog":          {"/audit-log", ""},
}

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// fill puts ids into the path of a sample.
func (s sample) fill(t testing.TB, ids map[string]string) string {
	t.Helper()
	return placeholder.ReplaceAllStringFunc(s.path, func(name string) string {
		id, known := ids[strings.Trim(name, "{}")]
		require.True(t, known, "%s in %s", name, s.path)
		return id
	})
}

// concrete is the path of a route with ids of nothing.
func concrete(r route) string {
	path := r.path
	if s, ok := samples[r.id]; ok {
		path = s.path
	}
	return placeholder.ReplaceAllStringFunc(path, func(string) string { return uuid.NewString() })
}

// body is one that the route takes, or, for routes that are not there, any.
func body(r route) string {
	if s, ok := samples[r.id]; ok || r.method == get {
		return s.body
	}
	return `{"nonsense":true}`
}

// served are the routes that have a handler.
func served(t testing.TB) (out []route) {
	t.Helper()
	for _, r := range routes {
		if r.mount != nil {
			require.Contains(t, samples, r.id, "give %s a sample of a call that succeeds", r.id)
			out = append(out, r)
		}
	}
	require.Len(t, out, len(samples))
	return out
}

// fresh are the ids of a sample's call: those of a past, with a connector, a link and
// a run that no other call has deleted or ended.
func (p *past) fresh(t testing.TB) map[string]string {
	t.Helper()
	name := "fresh-" + uuid.NewString()[:8]
	conn := &v1alpha1.Connector{ObjectMeta: p.meta(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	p.create(t, conn)
	link := &v1alpha1.ConnectorLink{ObjectMeta: p.meta(name), Spec: v1alpha1.ConnectorLinkSpec{
		Connector: v1alpha1.ConnectorName(name), Agent: "hello",
	}}
	p.create(t, link)
	ids := maps.Clone(p.ids)
	ids["connector"], ids["link"] = conn.Status.ID, link.Status.ID
	require.NoError(t, p.db.PutConnector(t.Context(), store.Connector{
		Ref: p.refOf(t, store.KindConnector, name), ID: uuid.MustParse(conn.Status.ID), ProjectID: p.projectID,
		EnvironmentID: p.id(t, "environment"), Name: name, Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"),
	}))
	ids["receiver"] = p.receiver(t, name+"-receiver").ID.String()
	spare := &v1alpha1.Environment{ObjectMeta: p.meta(name)}
	p.create(t, spare)
	ids["spare_environment"] = spare.Status.ID
	ids["failed_deployment"] = p.failTests(t).String()
	ids["open_deployment"] = p.building(t).String()
	tested := &v1alpha1.Environment{ObjectMeta: p.meta(name + "-test"), Spec: v1alpha1.EnvironmentSpec{Kind: v1alpha1.EnvironmentTest}}
	p.create(t, tested)
	ids["test_environment"] = tested.Status.ID
	open, _ := p.event(t, "hello")
	ids["open_run"], ids["replay"] = open.String(), p.replay(t)
	ended, _ := p.event(t, "hello")
	require.NoError(t, p.db.Cancel(t.Context(), store.Key{ProjectID: p.projectID, ID: ended}, store.RunErrorCancelled, "over"))
	ids["ended_run"] = ended.String()
	return ids
}

// idsFor are ids by which the sample of a route succeeds; what a call is to change
// is made anew.
func (p *past) idsFor(t testing.TB, r route) map[string]string {
	t.Helper()
	if r.does == reads {
		return p.ids
	}
	return p.fresh(t)
}

// bodyFor is the sample's body under a name that is free.
func bodyFor(r route) string {
	return strings.ReplaceAll(samples[r.id].body, "CRM", fmt.Sprintf("CRM %s", uuid.NewString()[:8]))
}

// operationOf is what the description says of a route.
func operationOf(t testing.TB, w *world, r route) *huma.Operation {
	t.Helper()
	item := w.server.OpenAPI().Paths[projectPath+r.path]
	require.NotNil(t, item, r.id)
	op := map[string]*huma.Operation{get: item.Get, post: item.Post, put: item.Put, patch: item.Patch, del: item.Delete}[r.method]
	require.NotNil(t, op, r.id)
	return op
}
