// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

// tenant is a project with one object of each kind. Each object has a chosen ID.
type tenant struct {
	*platform
	namespace string
	project   uuid.UUID
	// canary is in all that is the tenant's alone.
	canary string
	key    keys.Key
	// ids maps each kind to the ID of its object.
	ids map[string]string

	// The credentials that the objects resulted in.
	secret, runnerToken, buildToken string
	run, connectorRun, digest       string
	// replay has been cancelled.
	replay string
}

// kinds lists the kinds whose IDs a tenant can choose, in the order of their creation.
var kinds = []string{
	store.KindEnvironment, store.KindDeployment, store.KindConnector, store.KindConnectorLink, store.KindAPIKey,
}

// settle creates an empty project whose owner has all permissions in it.
func (p *platform) settle() *tenant {
	p.t.Helper()
	t := &tenant{platform: p, namespace: p.plane.Namespace(p.t), canary: "canary-" + uuid.NewString(), key: keys.Generate(), ids: map[string]string{}}
	t.project = v1alpha1.ProjectID(p.platformID, t.namespace)
	for _, kind := range kinds {
		t.ids[kind] = uuid.NewString()
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}
	t.create(&rbacv1.Role{ObjectMeta: t.meta("everything"), Rules: []rbacv1.PolicyRule{rule}})
	t.create(&rbacv1.RoleBinding{
		ObjectMeta: t.meta("everything"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "everything"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: t.owner()}},
	})
	p.plane.AwaitGranted(p.t, v1alpha1.Subject{User: t.owner()}, t.namespace, rule)
	t.create(&v1alpha1.Project{ObjectMeta: t.meta(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{
		Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git"},
	}})
	return t
}

func (t *tenant) owner() string { return "owner-of-" + t.namespace }

func (t *tenant) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: t.namespace, Name: name}
}

func (t *tenant) create(o client.Object) {
	t.t.Helper()
	require.NoError(t.t, t.client.Create(t.t.Context(), o))
}

// object returns the tenant's object of a kind as in its manifest, with the given ID. It refers to an environment, or a link to
// a connector, that may not exist.
func (t *tenant) object(kind, name, environment, id string) v1alpha1.ConditionedObject {
	t.t.Helper()
	meta, asked := t.meta(name), v1alpha1.UUID(id)
	switch kind {
	case store.KindEnvironment:
		return &v1alpha1.Environment{ObjectMeta: meta, Spec: v1alpha1.EnvironmentSpec{ID: asked}}
	case store.KindDeployment:
		return &v1alpha1.Deployment{ObjectMeta: meta, Spec: v1alpha1.DeploymentSpec{
			ID: asked, Environment: v1alpha1.EnvironmentName(environment), Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
		}}
	case store.KindConnector:
		return &v1alpha1.Connector{ObjectMeta: meta, Spec: v1alpha1.ConnectorSpec{
			ID: asked, Environment: v1alpha1.EnvironmentName(environment), Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
		}}
	case store.KindConnectorLink:
		connector, agent := kindName(store.KindConnector), "hello"
		if environment == missing {
			connector = missing
		}
		if name != kindName(kind) {
			agent = "another"
		}
		return &v1alpha1.ConnectorLink{ObjectMeta: meta, Spec: v1alpha1.ConnectorLinkSpec{
			ID: asked, Connector: v1alpha1.ConnectorName(connector), Agent: v1alpha1.AgentName(agent),
		}}
	case store.KindAPIKey:
		return &v1alpha1.APIKey{ObjectMeta: meta, Spec: v1alpha1.APIKeySpec{
			ID: asked, Hash: t.key.Hash(), KeyID: t.key.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: t.owner()},
		}}
	}
	require.Fail(t.t, "no manifest of kind", kind)
	return nil
}

// missing is a name that no object has.
const missing = "no-such"

// kindName returns the name of a tenant's object of a kind.
func kindName(kind string) string { return "my-" + strings.ToLower(kind) }

// apply creates the tenant's object of a kind with the tenant's own ID.
func (t *tenant) apply(kind string) {
	t.t.Helper()
	t.create(t.object(kind, kindName(kind), kindName(store.KindEnvironment), t.ids[kind]).(client.Object))
}

// remove deletes the tenant's object of a kind and waits until its id is free.
func (t *tenant) remove(kind, name, id string) {
	t.t.Helper()
	o := t.object(kind, name, missing, "").(client.Object)
	t.read(o)
	require.NoError(t.t, t.client.Delete(t.t.Context(), o))
	t.collectGarbage(o)
	t.eventually(func() bool {
		holder, err := t.store.Holder(t.t.Context(), t.row(id))
		return err != nil || holder.Name != name || holder.Kind != kind
	}, "%s of %s %s is not freed", id, kind, name)
}

// collectGarbage deletes the children of a deleted object. The control plane of the test has no garbage collector.
func (t *tenant) collectGarbage(owner client.Object) {
	t.t.Helper()
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &appsv1.DeploymentList{}, &batchv1.JobList{}} {
		require.NoError(t.t, t.client.List(t.t.Context(), list, client.InNamespace(t.namespace)))
		require.NoError(t.t, apimeta.EachListItem(list, func(o runtime.Object) error {
			if child := o.(client.Object); metav1.IsControlledBy(child, owner) {
				return client.IgnoreNotFound(t.client.Delete(t.t.Context(), child, client.PropagationPolicy(metav1.DeletePropagationBackground)))
			}
			return nil
		}))
	}
}

func (t *tenant) row(id string) store.Key {
	return store.Key{ProjectID: t.project, ID: uuid.MustParse(id)}
}

// inEffect waits until the tenant's object of a kind holds its id and works.
func (t *tenant) inEffect(kind string) {
	t.t.Helper()
	o := t.object(kind, kindName(kind), missing, "")
	t.eventually(func() bool {
		t.read(o.(client.Object))
		switch kind {
		case store.KindDeployment:
			return o.(*v1alpha1.Deployment).Status.Live
		case store.KindEnvironment: // the test runs no pods
			return !v1alpha1.IsStalled(o) && o.CommonStatus().ID == t.ids[kind]
		}
		return v1alpha1.IsReady(o) && o.CommonStatus().ID == t.ids[kind]
	}, "%s of %s: %v", kind, t.namespace, o.CommonStatus())
	t.eventually(func() bool { // the status of the object may be older than a restart
		holder, err := t.store.Holder(t.t.Context(), t.row(t.ids[kind]))
		return err == nil && holder.Name == kindName(kind)
	}, "nobody holds the id of %s of %s", kind, t.namespace)
}

func (t *tenant) read(o client.Object) {
	t.t.Helper()
	require.NoError(t.t, t.client.Get(t.t.Context(), client.ObjectKeyFromObject(o), o))
}

// token returns a value in a Secret of the tenant.
func (t *tenant) token(name, key string) string {
	t.t.Helper()
	secret := &corev1.Secret{ObjectMeta: t.meta(name)}
	t.eventually(func() bool {
		err := t.client.Get(t.t.Context(), client.ObjectKeyFromObject(secret), secret)
		return err == nil && len(secret.Data[key]) > 0
	}, "Secret %s", name)
	return string(secret.Data[key])
}

// populate creates all objects, makes them live and runs them twice: one run has ended, and the other run waits.
func (t *tenant) populate() {
	t.t.Helper()
	for _, kind := range kinds {
		t.apply(kind)
	}
	t.build()
	t.work()
}

// build acts as the tenant's build.
func (t *tenant) build() {
	t.t.Helper()
	t.buildToken = t.token(kindName(store.KindDeployment)+"-build-token", base.TokenKey)
	deployment := &v1alpha1.Deployment{ObjectMeta: t.meta(kindName(store.KindDeployment))}
	t.eventually(func() bool {
		t.read(deployment)
		return deployment.Status.Phase == v1alpha1.DeploymentBuilding
	}, "the deployment is not built: %+v", deployment)
	bundle := t.canary + " in the bundle"
	sum := sha256.Sum256([]byte(bundle))
	t.digest = "sha256:" + hex.EncodeToString(sum[:])
	t.told(t.buildToken, http.MethodPost, "/v1/build/report", dispatchapi.BuildReport{
		Phase: "testing", Commit: t.canary, CommitMessage: t.canary + " in the commit message", Author: t.canary,
	})
	t.told(t.buildToken, http.MethodPost, "/v1/build/log", dispatchapi.BuildLog{Chunk: t.canary + " in the log\n"})
	require.True(t.t, t.dispatch(t.buildToken, http.MethodPut, "/v1/build/bundle/"+t.digest, bundle).ok())
	t.told(t.buildToken, http.MethodPost, "/v1/build/result", dispatchapi.BuildResult{
		BundleDigest: t.digest, Agents: []dispatchapi.Agent{{
			Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml", Description: t.canary,
			Config: json.RawMessage(`{"prompt":"` + t.canary + `"}`),
		}, {Name: "spare", Type: "llm", SourcePath: "agents/spare.yaml"}},
	})
	for _, kind := range kinds {
		t.inEffect(kind)
	}
	t.runnerToken = t.token(kindName(store.KindEnvironment)+"-runner-token", base.TokenKey)
	t.eventually(func() bool {
		return t.dispatch(t.runnerToken, http.MethodPost, "/v1/claim", `{"runner_id":"r","limit":0}`).ok()
	}, "the token of the Secret is not known")
	t.secret = t.token(kindName(store.KindConnector)+"-connector", "secret")
}

// told posts a valid request to the internal port and requires success.
func (t *tenant) told(token, method, path string, body any) answer {
	t.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t.t, err)
	got := t.dispatch(token, method, path, string(text))
	require.True(t.t, got.ok(), "%s: %d %s", path, got.status, got.body)
	return got
}

// hookPath returns the path of the tenant's webhook.
func (t *tenant) hookPath() string {
	return "/hooks/" + t.project.String() + "/" + t.ids[store.KindConnector]
}

// work sends two webhooks; one run completes, the other waits.
func (t *tenant) work() {
	t.t.Helper()
	// The gateway may cache a deleted route for a moment.
	file := base64.StdEncoding.EncodeToString([]byte(t.canary + " in the file"))
	t.eventually(func() bool {
		return t.hook(t.hookPath(), t.secret, `{"patient":"`+t.canary+`","files":[{"name":"a.txt","mime_type":"text/plain","data":"`+file+`"}]}`).ok()
	}, "the webhook does not answer")
	var claimed dispatchapi.ClaimResponse
	got := t.told(t.runnerToken, http.MethodPost, "/v1/claim", dispatchapi.ClaimRequest{RunnerID: "r", Limit: 1, Digests: []string{t.digest}})
	require.NoError(t.t, json.Unmarshal([]byte(got.body), &claimed))
	require.Len(t.t, claimed.Runs, 1)
	run := claimed.Runs[0]
	t.told(t.runnerToken, http.MethodPost, "/v1/runs/"+run.ID.String()+"/journal", dispatchapi.JournalRequest{
		Token: run.Token, Entries: []dispatchapi.JournalEntry{{Sequence: 1, Kind: dispatchapi.JournalModelAnswer, Data: json.RawMessage(`"` + t.canary + `"`)}},
	})
	t.saveFile(run)
	t.told(t.runnerToken, http.MethodPost, "/v1/runs/"+run.ID.String()+"/complete", dispatchapi.CompleteRequest{
		Token: run.Token, Status: dispatchapi.StatusFailed, ErrorCode: "model_error", Error: t.canary + " in the error", Output: t.canary + " in the output",
	})
	t.run = run.ID.String()
	row, err := t.store.Run(t.t.Context(), t.row(t.run))
	require.NoError(t.t, err)
	t.connectorRun = row.ConnectorRunID.String()
	require.True(t.t, t.hook(t.hookPath(), t.secret, `{"patient":"`+t.canary+`"}`).ok())
	t.replay = t.waitingReplay()
	require.NoError(t.t, t.store.CancelReplay(t.t.Context(), t.row(t.replay)))
}

// saveFile saves the first file of a run.
func (t *tenant) saveFile(run dispatchapi.Run) {
	t.t.Helper()
	content := t.canary + " in the saved file"
	digest := sha256.Sum256([]byte(content))
	data, err := json.Marshal(store.SavedFile{
		ID: "s1", Name: "a.txt", MIMEType: "text/plain", Size: int64(len(content)), SHA256: hex.EncodeToString(digest[:]),
	})
	require.NoError(t.t, err)
	require.NoError(t.t, t.store.SaveFile(t.t.Context(), store.Lease{Run: t.row(run.ID.String()), Token: run.Token},
		[]store.JournalEntry{{Sequence: 2, Kind: store.JournalFile, Data: data}}, strings.NewReader(content)))
}

// waitingReplay returns the ID of a replay that continues in an hour.
func (t *tenant) waitingReplay() string {
	t.t.Helper()
	now, err := t.store.Now(t.t.Context())
	require.NoError(t.t, err)
	for {
		r, _, err := t.store.StartReplay(t.t.Context(), store.NewReplay{
			Connector: t.row(t.ids[store.KindConnector]), ID: uuid.New(), Fingerprint: []byte(t.canary), PerMinute: 1,
			Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunSkipped}, Since: now.Add(-time.Hour), Until: now},
		})
		require.NoError(t.t, err)
		to := r
		to.Position = uuid.Max
		err = t.store.MoveReplay(t.t.Context(), store.ReplayStep{From: r.Position, To: to, Due: now.Add(time.Hour)})
		if errors.Is(err, store.ErrReplayMoved) {
			continue // the gateway was quicker, and it has ended
		}
		require.NoError(t.t, err)
		return r.ID.String()
	}
}

// works checks that the tenant is undisturbed: its webhook and its key work, and the key shows the tenant's own objects.
func (t *tenant) works() {
	t.t.Helper()
	t.eventually(func() bool {
		return t.hook(t.hookPath(), t.secret, `{"patient":"`+t.canary+`"}`).status == http.StatusOK
	}, "the webhook does not answer")
	for _, path := range []string{"/environments", "/connectors/" + t.ids[store.KindConnector]} {
		var got answer
		t.eventually(func() bool {
			got = t.rest(t.key.String(), http.MethodGet, "/v1/projects/"+t.project.String()+path, "")
			return got.status == http.StatusOK
		}, "%s: %v", path, &got)
	}
	require.Equal(t.t, t.secret, t.token(kindName(store.KindConnector)+"-connector", "secret"))
}

// all returns all IDs of the tenant by the kind of their object.
func (t *tenant) all() map[string]string {
	out := map[string]string{"project": t.project.String()}
	if t.run != "" {
		out["run"], out["connector run"] = t.run, t.connectorRun
	}
	for kind, id := range t.ids {
		out[kind] = id
		out["derived "+kind] = v1alpha1.ProjectObjectID(t.project, kind, kindName(kind)).String()
	}
	return out
}

// requireNothingOf checks that a response to another caller contains no data of the tenant.
func (t *tenant) requireNothingOf(got answer, what string, about ...any) {
	t.t.Helper()
	theirs := []string{t.canary, t.secret, t.runnerToken, t.buildToken, t.digest}
	for _, text := range slices.DeleteFunc(theirs, func(s string) bool { return s == "" }) {
		require.NotContains(t.t, got.body, text, append([]any{what}, about...)...)
	}
}
