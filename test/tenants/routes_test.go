// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/dispatch"
	"github.com/agentplatform/agentplatform/webhookgw/ingress"
	"github.com/agentplatform/agentplatform/webhookgw/push"
)

// idsByResource returns a tenant's own ID for each resource that the description names for parameters.
var idsByResource = map[string]func(*tenant) string{
	"project":       func(t *tenant) string { return t.project.String() },
	"environment":   func(t *tenant) string { return t.ids[store.KindEnvironment] },
	"deployment":    func(t *tenant) string { return t.ids[store.KindDeployment] },
	"connector":     func(t *tenant) string { return t.ids[store.KindConnector] },
	"link":          func(t *tenant) string { return t.ids[store.KindConnectorLink] },
	"run":           func(t *tenant) string { return t.run },
	"replay":        func(t *tenant) string { return t.replay },
	"connector_run": func(t *tenant) string { return t.connectorRun },
}

// resourceOf returns the resource whose ID a parameter takes, or "".
func resourceOf(param *huma.Param) string {
	if param.Schema == nil {
		return ""
	}
	resource, _ := param.Schema.Extensions["x-resource"].(string)
	return resource
}

// anUpload starts with the magic number of application/gzip.
const anUpload = "\x1f\x8b an archive"

// bodyOf returns a body that an operation accepts, which has no ID except in the fields of bodyIDs.
// It is the example of the description, unless the example leaves something that gets in the way of
// the next call.
func bodyOf(op *huma.Operation) string {
	if op.OperationID == "createReplay" { // a connector has one open replay
		return `{"status":["failed"],"since":"2026-01-01T00:00:00Z","dry_run":true}`
	}
	if op.RequestBody == nil {
		return ""
	}
	media, isJSON := op.RequestBody.Content["application/json"]
	if !isJSON {
		return anUpload
	}
	example, _ := media.Example.(json.RawMessage) // nil without an example
	return strings.ReplaceAll(string(example), "CRM", "n-"+uuid.NewString()[:8])
}

// operationNamed returns the operation of an ID.
func (p *platform) operationNamed(id string) *huma.Operation {
	p.t.Helper()
	for _, o := range p.operations() {
		if o.OperationID == id {
			return o.Operation
		}
	}
	require.Fail(p.t, "no such operation", id)
	return nil
}

// bodyID is an operation with an ID in its body: the request that contains the ID, the response to an unknown ID, and the kind
// of the caller's own ID that the operation accepts. In the body, LINKS stands for the links of the caller's outbound
// connector, and LINK for one of them.
type bodyID struct {
	method, path, body string
	unknown            int
	kind               string
}

// bodyIDs lists the operations with an ID in their body, by the field of the ID. askBodies sends foreign IDs there.
var bodyIDs = map[string]bodyID{
	"createLink.outbound.source_connector_ids": {
		http.MethodPost, "LINKS", `{"agent_name":"NAME","outbound":{"source_connector_ids":["ID"]}}`, http.StatusUnprocessableEntity, store.KindConnector,
	},
	"updateLink.outbound.source_connector_ids": {
		http.MethodPatch, "LINKS/LINK", `{"outbound":{"source_connector_ids":["ID"]}}`, http.StatusUnprocessableEntity, store.KindConnector,
	},
	"createEnvironment.copy_from_environment_id": {
		http.MethodPost, "/environments", `{"name":"NAME","copy_from_environment_id":"ID"}`, http.StatusNotFound, store.KindEnvironment,
	},
}

// askBodies sends each ID of the victim in the body of every operation that accepts an ID there. The response must equal the
// response to an unknown ID.
func (attacker *tenant) askBodies(victim *tenant, ids map[string]string) {
	attacker.t.Helper()
	attacker.inEffect(store.KindEnvironment) // also in a store that has lost it
	project := "/v1/projects/" + attacker.project.String()
	made := func(path, body string) string {
		got := attacker.rest(attacker.key.String(), http.MethodPost, project+path, strings.ReplaceAll(body, "NAME", "n-"+uuid.NewString()[:8]))
		require.True(attacker.t, got.ok(), "%s: %d %s", path, got.status, got.body)
		return regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(got.body)[1]
	}
	connector := made("/connectors?environment_id="+attacker.ids[store.KindEnvironment], `{"name":"NAME","type":"webhook","mode":"outbound","config":{"url":"https://example.com"}}`)
	links := "/connectors/" + connector + "/links"
	link := made(links, `{"agent_name":"NAME"}`)
	for field, place := range bodyIDs {
		send := func(id string) answer {
			path := project + strings.NewReplacer("LINKS", links, "LINK", link).Replace(place.path)
			return attacker.rest(attacker.key.String(), place.method, path, strings.NewReplacer("ID", id, "NAME", "n-"+uuid.NewString()[:8]).Replace(place.body))
		}
		unknown := send(uuid.NewString())
		require.Equal(attacker.t, place.unknown, unknown.status, "%s: %s", field, unknown.body)
		own := send(attacker.ids[place.kind])
		require.True(attacker.t, own.ok(), "%s: %s", field, own.body)
		if place.path == "/environments" { // the number of environments is limited
			made := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(own.body)[1]
			got := attacker.rest(attacker.key.String(), http.MethodDelete, project+place.path+"/"+made, "")
			require.True(attacker.t, got.ok(), got.body)
		}
		for what, id := range ids {
			if attacker.has(id) {
				continue
			}
			got := send(id)
			victim.requireNothingOf(got, "%s with the %s of another project", field, what)
			require.Equal(attacker.t, unknown.status, got.status, "%s with the %s of another project: %s", field, what, got.body)
			require.Equal(attacker.t, unknown.body, got.body, "%s: the response differs from that for an unknown ID", field)
		}
	}
	got := attacker.rest(attacker.key.String(), http.MethodDelete, project+"/connectors/"+connector, "")
	require.True(attacker.t, got.ok(), got.body)
}

// operation is an operation of the facade, with its parameters that take an ID.
type operation struct {
	*huma.Operation
	ids []*huma.Param
}

// savedFile is the parameter with the ID of a file, which is unique in the run that the path names.
const savedFile = "file_id"

// operations returns all operations of the facade.
func (p *platform) operations() []operation {
	p.t.Helper()
	var out []operation
	for path, item := range p.facade.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete, item.Head, item.Options, item.Trace} {
			if op == nil {
				continue
			}
			o := operation{Operation: op}
			for _, param := range op.Parameters {
				if param.Schema != nil && param.Schema.Format == "uuid" {
					require.Contains(p.t, idsByResource, resourceOf(param), "%s: give the parameter %s the tag resource", op.OperationID, param.Name)
					o.ids = append(o.ids, param)
				} else if param.Name != savedFile {
					require.NotContains(p.t, param.Name, "_id", "%s: an ID without the format uuid", op.OperationID)
				}
			}
			require.Equal(p.t, strings.Count(path, "{"), len(slices.DeleteFunc(slices.Clone(op.Parameters), func(q *huma.Param) bool { return q.In != "path" })))
			if op.RequestBody != nil {
				require.NotEmpty(p.t, bodyOf(op), "%s: give the endpoint an example with a body", op.OperationID)
				for _, media := range op.RequestBody.Content {
					p.requireNoIDs(op.OperationID, media.Schema)
				}
			}
			out = append(out, o)
		}
	}
	require.NotEmpty(p.t, out)
	return out
}

// requireNoIDs requires that a body takes no ID except in the fields of bodyIDs.
func (p *platform) requireNoIDs(where string, schema *huma.Schema) {
	p.t.Helper()
	if schema == nil {
		return
	}
	if schema.Ref != "" {
		schema = p.facade.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
	}
	require.NotEqual(p.t, "uuid", schema.Format, "%s: an ID in a body; add its field to bodyIDs", where)
	for name, property := range schema.Properties {
		if _, attacked := bodyIDs[where+"."+name]; attacked {
			continue
		}
		require.False(p.t, strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "_ids"), "%s.%s: an ID in a body; add the field to bodyIDs", where, name)
		p.requireNoIDs(where+"."+name, property)
	}
	p.requireNoIDs(where, schema.Items)
}

// request returns the operation with the tenant's own IDs, except for the given parameters.
func (o operation) request(t *tenant, instead map[string]string) (path, body string) {
	path, query := o.Path, url.Values{}
	for _, param := range o.Parameters {
		value, given := instead[param.Name]
		switch {
		case given:
		case slices.Contains(o.ids, param):
			value = idsByResource[resourceOf(param)](t)
		case param.Required && param.Name == "agent_name":
			value = "hello" // the agent of every tenant
		case param.Required:
			value = fmt.Sprint(param.Schema.Examples[0])
		}
		switch {
		case param.In == "path":
			path = strings.ReplaceAll(path, "{"+param.Name+"}", value)
		case value != "":
			query.Set(param.Name, value)
		}
	}
	return path + "?" + query.Encode(), bodyOf(o.Operation)
}

// askREST calls every operation with the attacker's key and puts each ID of the victim into each
// parameter that takes an ID, one at a time and all at once. The call may succeed if the attacker
// has an object with that ID; the response never holds anything of the victim's.
func (attacker *tenant) askREST(victim *tenant, ids map[string]string) {
	attacker.t.Helper()
	for _, o := range attacker.operations() {
		together := map[string]string{}
		for _, place := range o.ids {
			together[place.Name] = idsByResource[resourceOf(place)](victim)
			for what, id := range ids {
				if o.Method == http.MethodDelete && attacker.has(id) {
					continue // a tenant may delete its own objects
				}
				path, body := o.request(attacker, map[string]string{place.Name: id})
				got := attacker.rest(attacker.key.String(), o.Method, path, body)
				victim.requireNothingOf(got, "%s with the %s of another project as %s", o.OperationID, what, place.Name)
				if !attacker.has(id) {
					require.Contains(attacker.t, []int{http.StatusForbidden, http.StatusNotFound}, got.status,
						"%s with the %s of another project as %s: %s", o.OperationID, what, place.Name, got.body)
				}
			}
		}
		path, body := o.request(victim, together)
		got := attacker.rest(attacker.key.String(), o.Method, path, body)
		victim.requireNothingOf(got, "%s of another project", o.OperationID)
		require.Equal(attacker.t, http.StatusForbidden, got.status, "%s of another project: %s", o.OperationID, got.body)
	}
}

// has reports whether the tenant has or had an object with the ID.
func (t *tenant) has(id string) bool {
	t.t.Helper()
	_, holder := t.store.Holder(t.t.Context(), t.row(id))
	_, deployment := t.store.Deployment(t.t.Context(), t.row(id))
	return holder == nil || deployment == nil
}

// asksItsOwn checks that the requests of askREST would succeed with the attacker's own IDs.
func (t *tenant) asksItsOwn() {
	t.t.Helper()
	for _, o := range t.operations() {
		path, body := o.request(t, t.spare(o))
		got := t.rest(t.key.String(), o.Method, path, body)
		require.True(t.t, got.ok(), "%s %s: %d %s", o.Method, path, got.status, got.body)
	}
}

// openRun creates a waiting run for a single call and returns its ID.
func (t *tenant) openRun() string {
	t.t.Helper()
	got := t.hook(t.hookPath(), t.secret, `{"patient":"`+t.canary+`"}`)
	require.True(t.t, got.ok(), got.body)
	return regexp.MustCompile(`"run_ids":\["([^"]+)"`).FindStringSubmatch(got.body)[1]
}

// receiver returns the ID of an active outbound connector whose destination never responds.
func (t *tenant) receiver() string {
	t.t.Helper()
	got := t.rest(t.key.String(), http.MethodPost, "/v1/projects/"+t.project.String()+"/connectors?environment_id="+t.ids[store.KindEnvironment],
		`{"name":"n-`+uuid.NewString()[:8]+`","type":"webhook","mode":"outbound","config":{"url":"https://receiver.invalid"}}`)
	require.True(t.t, got.ok(), got.body)
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(got.body)[1]
	t.eventually(func() bool {
		_, err := t.store.Route(t.t.Context(), t.row(id))
		return err == nil
	}, "the connector is not in effect")
	return id
}

// failedDeployment returns the ID of a deployment whose tests failed.
func (t *tenant) failedDeployment() string {
	t.t.Helper()
	got := t.rest(t.key.String(), http.MethodPost, "/v1/projects/"+t.project.String()+"/deployments?environment_id="+t.ids[store.KindEnvironment], "")
	require.True(t.t, got.ok(), got.body)
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(got.body)[1]
	t.eventually(func() bool {
		return t.store.EndDeployment(t.t.Context(), t.row(id), store.DeploymentFailed, store.FailureTests, "no") == nil
	}, "the deployment does not begin")
	return id
}

// environment creates an environment from a body and returns its ID.
func (t *tenant) environment(body string) string {
	t.t.Helper()
	got := t.rest(t.key.String(), http.MethodPost, "/v1/projects/"+t.project.String()+"/environments", strings.ReplaceAll(body, "NAME", "n-"+uuid.NewString()[:8]))
	require.True(t.t, got.ok(), got.body)
	return regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(got.body)[1]
}

// spare creates objects that an operation may delete or end, and returns their IDs.
func (t *tenant) spare(o operation) map[string]string {
	t.t.Helper()
	switch {
	case o.OperationID == "cancelRun":
		return map[string]string{"run_id": t.openRun()}
	case o.OperationID == "eraseRun":
		run := map[string]string{"run_id": t.openRun()}
		got := t.rest(t.key.String(), http.MethodPost, "/v1/projects/"+t.project.String()+"/runs/"+run["run_id"]+"/cancel", "")
		require.True(t.t, got.ok(), got.body)
		return run
	case o.OperationID == "deployAnyway":
		return map[string]string{"deployment_id": t.failedDeployment()}
	case o.OperationID == "cancelReplay":
		return map[string]string{"replay_id": t.waitingReplay()}
	case o.OperationID == "testConnector":
		return map[string]string{"connector_id": t.receiver()}
	case strings.HasSuffix(o.OperationID, "TestSession"):
		return map[string]string{"environment_id": t.environment(`{"name":"NAME","kind":"test"}`)}
	case o.Method != http.MethodDelete:
		return nil
	}
	project := "/v1/projects/" + t.project.String()
	first := func(method, path, body string) string {
		got := t.rest(t.key.String(), method, path, body)
		require.True(t.t, got.ok(), "%s %s: %d %s", method, path, got.status, got.body)
		return regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(got.body)[1]
	}
	if o.OperationID == "deleteEnvironment" {
		return map[string]string{"environment_id": t.environment(bodyOf(t.operationNamed("createEnvironment")))}
	}
	connector := first(http.MethodPost, project+"/connectors?agent_name=hello&environment_id="+t.ids[store.KindEnvironment],
		bodyOf(t.operationNamed("createConnector")))
	return map[string]string{
		"connector_id": connector, "link_id": first(http.MethodGet, project+"/connectors/"+connector+"/links", ""),
	}
}

// hookRoutes maps each route of the public port to its checks.
var hookRoutes = map[string]func(attacker, victim *tenant, ids map[string]string){
	"/hooks/{project_id}/{connector_id}": func(attacker, victim *tenant, ids map[string]string) {
		own, theirs := attacker.project.String(), victim.project.String()
		for _, id := range ids {
			for _, project := range []string{own, theirs} {
				for _, secret := range []string{attacker.secret, ""} {
					got := attacker.hook("/hooks/"+project+"/"+id, secret, `{}`)
					victim.requireNothingOf(got, "a webhook")
					_, err := attacker.store.Route(attacker.t.Context(), attacker.row(id))
					if project == theirs || err != nil {
						require.Contains(attacker.t, []int{http.StatusUnauthorized, http.StatusNotFound}, got.status, got.body)
					}
				}
			}
		}
		got := attacker.hook("/hooks/"+theirs+"/"+attacker.ids[store.KindConnector], attacker.secret, `{}`)
		require.Equal(attacker.t, http.StatusNotFound, got.status, got.body)
		if victim.secret != "" {
			got = attacker.hook("/hooks/"+own+"/"+victim.ids[store.KindConnector], victim.secret, `{}`)
			require.Contains(attacker.t, []int{http.StatusUnauthorized, http.StatusNotFound}, got.status, "the victim's secret opens nothing of the attacker's")
		}
	},
	// The route has no secret. A caller that knows the project can trigger a poll of its repository: see TestPush_ForgedCall.
	"/git/{project_id}": func(attacker, victim *tenant, ids map[string]string) {
		for what, id := range ids {
			got := attacker.send(http.MethodPost, "http://"+attacker.gateway.PublicAddr()+"/git/"+id, `{}`, http.Header{"X-Gitea-Event": {"release"}})
			victim.requireNothingOf(got, "a push webhook with the %s of another project", what)
			if what == "project" {
				require.Equal(attacker.t, http.StatusOK, got.status, got.body)
				require.JSONEq(attacker.t, `{"status":"ignored"}`, got.body)
				continue
			}
			require.Equal(attacker.t, http.StatusNotFound, got.status, "%s: %s", what, got.body)
		}
	},
}

// dispatchBodies maps each route of the internal port to its request body. RUN stands for the ID of the victim's run, and
// DIGEST for the digest of the victim's bundle.
var dispatchBodies = map[string]string{
	"POST /v1/claim":                   `{"runner_id":"r","limit":64,"digests":["DIGEST"],"drift":[{"deployment_id":"RUN","agent":"a","server":"crm","tools":["get"]}]}`,
	"POST /v1/heartbeat":               `{"leases":[{"run_id":"RUN","token":1}]}`,
	"POST /v1/journals":                `{"appends":[{"run_id":"RUN","token":1,"entries":[{"sequence":2,"kind":"model_answer","data":"x"}]}]}`,
	"POST /v1/runs/{id}/journal":       `{"token":1,"entries":[{"sequence":2,"kind":"model_answer","data":"x"}]}`,
	"POST /v1/runs/{id}/complete":      `{"token":1,"status":"completed","output":"x"}`,
	"POST /v1/runs/{id}/release":       `{"token":1}`,
	"POST /v1/runs/{id}/sends":         `{"token":1,"mode":"agent_tool","name":"tell","position":1,"payload":"x"}`,
	"GET /v1/runs/{id}/input":          ``,
	"GET /v1/runs/{id}/files":          ``,
	"GET /v1/runs/{id}/files/{number}": ``,
	"GET /v1/runs/{id}/journal":        ``,
	"PUT /v1/runs/{id}/saved":          ``,
	"GET /v1/runs/{id}/saved/{file}":   ``,
	"GET /v1/bundles/{digest}":         ``,
	"POST /v1/build/report":            `{"phase":"testing","commit_message":"x"}`,
	"POST /v1/build/log":               `{"number":7,"chunk":"x"}`,
	"GET /v1/build/upload":             ``,
	"PUT /v1/build/bundle/{digest}":    `x`,
	"POST /v1/build/result":            `{"bundle_digest":"DIGEST"}`,
}

// ofTheToken lists the routes without an ID. They act on the object of the token and may succeed.
var ofTheToken = []string{"POST /v1/claim", "POST /v1/build/report", "POST /v1/build/log"}

// askDispatch calls every route of the internal port about the victim's runs,
// bundle and all other ids with the attacker's tokens.
func (attacker *tenant) askDispatch(victim *tenant, ids map[string]string) {
	attacker.t.Helper()
	for _, route := range attacker.walk(dispatch.New(dispatch.Options{Store: attacker.store}).Handler) {
		body, known := dispatchBodies[route]
		require.True(attacker.t, known, "%s: the table of dispatch's routes must know it", route)
		method, path, _ := strings.Cut(route, " ")
		for _, id := range ids {
			fill := strings.NewReplacer("{id}", id, "{digest}", victim.digest, "{number}", "0", "RUN", id, "DIGEST", victim.digest)
			for _, token := range []string{attacker.runnerToken, attacker.buildToken, "", "nobody's"} {
				got := attacker.dispatch(token, method, fill.Replace(path), fill.Replace(body))
				if route == "POST /v1/claim" || route == "POST /v1/heartbeat" { // the response may repeat values of the request
					got.body = strings.ReplaceAll(got.body, victim.digest, "")
				}
				victim.requireNothingOf(got, "%s", route)
				if route == "POST /v1/heartbeat" && got.ok() { // the response reports each claim separately
					require.Contains(attacker.t, got.body, `"lost":[{"run_id":"`+strings.ToLower(id)+`","token":1}]`)
				} else if route == "POST /v1/journals" && got.ok() { // as the response reports each append
					require.Regexp(attacker.t, `^{"results":\[{"status":404,"detail":"[^"]*"}\]}`, got.body)
				} else if !slices.Contains(ofTheToken, route) {
					require.False(attacker.t, got.ok(), "%s: %d %s", route, got.status, got.body)
				}
			}
		}
	}
}

// walk lists the routes of a handler.
func (p *platform) walk(handler http.Handler) (out []string) {
	p.t.Helper()
	require.NoError(p.t, chi.Walk(handler.(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		out = append(out, method+" "+route)
		return nil
	}))
	require.NotEmpty(p.t, out)
	return out
}

// askHooks calls the public port.
func (attacker *tenant) askHooks(victim *tenant, ids map[string]string) {
	attacker.t.Helper()
	for _, handler := range []http.Handler{ingress.New(ingress.Options{Store: attacker.store}).Handler, push.New(push.Options{Store: attacker.store}).Handler} {
		for _, route := range attacker.walk(handler) {
			_, path, _ := strings.Cut(route, " ")
			require.Contains(attacker.t, hookRoutes, path, "the table of the public port must know it")
		}
	}
	for _, ask := range hookRoutes {
		ask(attacker, victim, ids)
	}
}

// ask calls everything with ids of the victim.
func (attacker *tenant) ask(victim *tenant, ids map[string]string) {
	attacker.t.Helper()
	attacker.askREST(victim, ids)
	attacker.askBodies(victim, ids)
	attacker.askHooks(victim, ids)
	attacker.askDispatch(victim, ids)
}

// In effect, and once deleted.
func TestRoutes_RejectForeignIDs(t *testing.T) {
	p := start(t)
	victim, attacker := p.settle(), p.settle()
	victim.populate()
	attacker.populate()
	attacker.asksItsOwn()
	before := victim.rows()
	attacker.ask(victim, victim.all())
	require.Equal(t, before, victim.rows())
	victim.works()
	for _, kind := range slices.Backward(kinds) {
		victim.remove(kind, kindName(kind), victim.ids[kind])
	}
	before = victim.rows()
	attacker.ask(victim, victim.all())
	require.Equal(t, before, victim.rows())
}
