// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
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

// A place of a request that takes an id, and one's own id for it. Whoever adds a
// place says here which id belongs there.
var places = map[string]func(*tenant) string{
	"project_id":       func(t *tenant) string { return t.project.String() },
	"environment_id":   func(t *tenant) string { return t.ids[store.KindEnvironment] },
	"deployment_id":    func(t *tenant) string { return t.ids[store.KindDeployment] },
	"connector_id":     func(t *tenant) string { return t.ids[store.KindConnector] },
	"link_id":          func(t *tenant) string { return t.ids[store.KindConnectorLink] },
	"run_id":           func(t *tenant) string { return t.run },
	"replay_id":        func(t *tenant) string { return t.replay },
	"connector_run_id": func(t *tenant) string { return t.connectorRun },
}

// otherPlaces are the ids of operations that take another one under that name.
var otherPlaces = map[string]func(*tenant) string{
	"getConnectorRun run_id":    func(t *tenant) string { return t.connectorRun },
	"replayConnectorRun run_id": func(t *tenant) string { return t.connectorRun },
}

// names are the parameters that take no id, but must be given.
var names = map[string]string{"agent_name": "hello", "number": "0", "holder": "anna"}

// anUpload begins as an archive of type application/gzip does.
const anUpload = "\x1f\x8b an archive"

// bodies are what an operation creates or changes. There is no id in any of them but
// those of bodyIDs.
var bodies = map[string]string{
	"createEnvironment": `{"name":"NAME"}`,
	"createDeployment":  `{"branch":"main"}`,
	"uploadDeployment":  anUpload,
	"updateEnvironment": `{"settings":{"runner":{"concurrency":10}}}`,
	"replaceVariables":  `[{"name":"REGION","value":"eu","sensitive":false}]`,
	"holdTestSession":   `{"holder":"anna"}`,
	"createConnector":   `{"name":"NAME","type":"webhook","config":{}}`,
	"createLink":        `{"agent_name":"spare"}`,
	"updateConnector":   `{"enabled":true}`,
	"updateLink":        `{"files_required":false}`,
	"createReplay":      `{"status":["failed"],"since":"2026-01-01T00:00:00Z","dry_run":true}`,
	"rotateSecret":      `{"grace_seconds":86400}`,
}

// bodyID is the body of an operation with an id, where it is sent (LINKS are the links of an own
// outbound connector, LINK is one of them), how an id that nobody has is answered there, and whose
// own id is taken.
type bodyID struct {
	method, path, body string
	unknown            int
	kind               string
}

// bodyIDs are the operations with an id in their body, by the field that takes it: askBodies
// sends ids of others there.
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

// askBodies sends each id of the victim in the body of every operation that takes one
// there; it is answered as one that nobody has.
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
		if place.path == "/environments" { // of which there may be few
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
			require.Equal(attacker.t, unknown.body, got.body, "%s: it is told apart from an id that nobody has", field)
		}
	}
	got := attacker.rest(attacker.key.String(), http.MethodDelete, project+"/connectors/"+connector, "")
	require.True(attacker.t, got.ok(), got.body)
}

// operation is one of the facade, with its places.
type operation struct {
	*huma.Operation
	places []*huma.Param
}

// operations are all of the facade.
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
					require.Contains(p.t, places, param.Name, "%s: whose id is this? The table of places must know", op.OperationID)
					o.places = append(o.places, param)
				} else {
					require.NotContains(p.t, param.Name, "_id", "%s: an id that is not declared as uuid", op.OperationID)
				}
			}
			require.Equal(p.t, strings.Count(path, "{"), len(slices.DeleteFunc(slices.Clone(op.Parameters), func(q *huma.Param) bool { return q.In != "path" })))
			if op.RequestBody != nil {
				require.Contains(p.t, bodies, op.OperationID, "the table of bodies must know it")
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

// requireNoIDs says that a body takes no id: one that does needs attacks.
func (p *platform) requireNoIDs(where string, schema *huma.Schema) {
	p.t.Helper()
	if schema == nil {
		return
	}
	if schema.Ref != "" {
		schema = p.facade.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
	}
	require.NotEqual(p.t, "uuid", schema.Format, "%s: an id in a body, of which the table of bodies knows nothing", where)
	for name, property := range schema.Properties {
		if _, attacked := bodyIDs[where+"."+name]; attacked {
			continue
		}
		require.False(p.t, strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "_ids"), "%s.%s: an id in a body", where, name)
		p.requireNoIDs(where+"."+name, property)
	}
	p.requireNoIDs(where, schema.Items)
}

// own is the tenant's own id for a place of an operation.
func (o operation) own(t *tenant, param *huma.Param) string {
	if other, ok := otherPlaces[o.OperationID+" "+param.Name]; ok {
		return other(t)
	}
	return places[param.Name](t)
}

// request is the operation with the tenant's own ids, but for those given.
func (o operation) request(t *tenant, instead map[string]string) (path, body string) {
	path, query := o.Path, url.Values{}
	for _, param := range o.Parameters {
		value, given := instead[param.Name]
		switch {
		case given:
		case slices.Contains(o.places, param):
			value = o.own(t, param)
		default:
			value = names[param.Name]
		}
		switch {
		case param.In == "path":
			path = strings.ReplaceAll(path, "{"+param.Name+"}", value)
		case value != "" && (param.Name != "agent_name" || given):
			query.Set(param.Name, value)
		}
	}
	return path + "?" + query.Encode(), strings.ReplaceAll(bodies[o.OperationID], "NAME", "n-"+uuid.NewString()[:8])
}

// askREST puts each id of the victim into each place of every operation, one at a
// time and all at once, with the key of the attacker. What the attacker has an
// own object for may be answered; with nothing of the victim's.
func (attacker *tenant) askREST(victim *tenant, ids map[string]string) {
	attacker.t.Helper()
	for _, o := range attacker.operations() {
		together := map[string]string{}
		for _, place := range o.places {
			together[place.Name] = o.own(victim, place)
			for what, id := range ids {
				if o.Method == http.MethodDelete && attacker.has(id) {
					continue // it may delete what is its own
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

// has says whether the tenant has or had an object of its own under an id.
func (t *tenant) has(id string) bool {
	t.t.Helper()
	_, holder := t.store.Holder(t.t.Context(), t.row(id))
	_, deployment := t.store.Deployment(t.t.Context(), t.row(id))
	return holder == nil || deployment == nil
}

// asksItsOwn says that the requests of askREST are such that would be answered,
// were they the attacker's own.
func (t *tenant) asksItsOwn() {
	t.t.Helper()
	for _, o := range t.operations() {
		path, body := o.request(t, t.spare(o))
		got := t.rest(t.key.String(), o.Method, path, body)
		require.True(t.t, got.ok(), "%s %s: %d %s", o.Method, path, got.status, got.body)
	}
}

// openRun is the id of a run that waits, made for one call alone.
func (t *tenant) openRun() string {
	t.t.Helper()
	got := t.hook(t.hookPath(), t.secret, `{"patient":"`+t.canary+`"}`)
	require.True(t.t, got.ok(), got.body)
	return regexp.MustCompile(`"run_ids":\["([^"]+)"`).FindStringSubmatch(got.body)[1]
}

// receiver is the id of an outbound connector that is in effect, of which nothing answers.
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

// failedDeployment is the id of a deployment whose tests failed.
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

// environment is the id of one that is made of a body.
func (t *tenant) environment(body string) string {
	t.t.Helper()
	got := t.rest(t.key.String(), http.MethodPost, "/v1/projects/"+t.project.String()+"/environments", strings.ReplaceAll(body, "NAME", "n-"+uuid.NewString()[:8]))
	require.True(t.t, got.ok(), got.body)
	return regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(got.body)[1]
}

// spare are ids of what an operation may delete or end: made for it alone.
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
		return map[string]string{"environment_id": t.environment(bodies["createEnvironment"])}
	}
	connector := first(http.MethodPost, project+"/connectors?agent_name=hello&environment_id="+t.ids[store.KindEnvironment],
		strings.ReplaceAll(bodies["createConnector"], "NAME", "n-"+uuid.NewString()[:8]))
	return map[string]string{
		"connector_id": connector, "link_id": first(http.MethodGet, project+"/connectors/"+connector+"/links", ""),
	}
}

// hookRoutes are the routes of the public port and what must hold there.
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
	// It has no secret: who knows the project can have its repository looked at, see TestAForgedPush.
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

// dispatchBodies are what is sent to each route of the internal port: RUN is a
// run of the victim's, DIGEST its bundle.
var dispatchBodies = map[string]string{
	"POST /v1/claim":                   `{"runner_id":"r","limit":64,"digests":["DIGEST"]}`,
	"POST /v1/heartbeat":               `{"leases":[{"run_id":"RUN","token":1}]}`,
	"POST /v1/runs/{id}/journal":       `{"token":1,"entries":[{"sequence":2,"kind":"model_answer","data":"x"}]}`,
	"POST /v1/runs/{id}/complete":      `{"token":1,"status":"completed","output":"x"}`,
	"POST /v1/runs/{id}/release":       `{"token":1}`,
	"POST /v1/runs/{id}/sends":         `{"token":1,"mode":"agent_tool","name":"tell","position":1,"payload":"x"}`,
	"GET /v1/runs/{id}/input":          ``,
	"GET /v1/runs/{id}/files":          ``,
	"GET /v1/runs/{id}/files/{number}": ``,
	"GET /v1/runs/{id}/journal":        ``,
	"GET /v1/bundles/{digest}":         ``,
	"POST /v1/build/report":            `{"phase":"testing","commit_message":"x"}`,
	"POST /v1/build/log":               `{"number":7,"chunk":"x"}`,
	"GET /v1/build/upload":             ``,
	"PUT /v1/build/bundle/{digest}":    `x`,
	"POST /v1/build/result":            `{"bundle_digest":"DIGEST"}`,
}

// ofTheToken are routes that name nothing: what they do is done to what the token
// is of, and they may succeed.
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
				if route == "POST /v1/claim" || route == "POST /v1/heartbeat" { // it may repeat what was asked
					got.body = strings.ReplaceAll(got.body, victim.digest, "")
				}
				victim.requireNothingOf(got, "%s", route)
				if route == "POST /v1/heartbeat" && got.ok() { // each claim is judged for itself
					require.Contains(attacker.t, got.body, `"lost":[{"run_id":"`+strings.ToLower(id)+`","token":1}]`)
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

// TestIDsOfAnotherProjectAreNobodysInAnyRequest: in effect, and once deleted.
func TestIDsOfAnotherProjectAreNobodysInAnyRequest(t *testing.T) {
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
