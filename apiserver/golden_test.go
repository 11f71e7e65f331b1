// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// golden are the files of testdata/golden: the whole objects that calls answer with. What is before
// the first dash of a file's name is its shape.
var golden = map[string]string{
	"environment-production": "/environments/{environment}",
	"environment-alpha":      "/environments/{alpha}",
	"deployment-live":        "/deployments/{deployment}",
	"deployment-failed":      "/deployments/{failed}",
	"deployment-building":    "/deployments/{building}",
	"deployment-waiting":     "/deployments/{waiting}",
	"agent-hello":            "/agents/hello?environment_id={environment}",
	"agent-hello-b":          "/agents/hello-b?environment_id={environment}",
	"agents":                 "/agents?environment_id={environment}&include_variants=true",
	"connector-tickets":      "/connectors/{connector}",
	"connector-results":      "/connectors/{results}",
	"connector-nightly":      "/connectors/{nightly}",
}

// zero are the fields that no golden object fills, and why.
var zero = map[string]string{
	"agent.cost_unknown": "it has a cost",
	"agent.judges":       "nothing is judged in this release",
}

// TestAnswersSayWhatIsThere: whole, and each field of a shape with a value in one of them, so that
// one which is left out, or is another's, is found.
func TestAnswersSayWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newGolden(t)
	key := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"agents.view", "connectors.view", "deployments.view", "environments.view"}
	})
	files, err := os.ReadDir("testdata/golden")
	require.NoError(t, err)
	require.Len(t, files, len(golden))
	filled := map[string]bool{}
	for name, at := range golden {
		text, err := os.ReadFile(path.Join("testdata/golden", name+".json"))
		require.NoError(t, err)
		status, body := w.call(t, key, http.MethodGet, sample{path: at}.fill(t, w.ids), "")
		require.Equal(t, http.StatusOK, status, "%s: %s", name, body)
		require.JSONEq(t, sample{path: string(text)}.fill(t, w.ids), string(body), "%s: %s", name, body)
		shape, _, _ := strings.Cut(name, "-")
		var object map[string]any
		if json.Unmarshal(body, &object) == nil {
			for field, value := range object {
				filled[shape+"."+field] = filled[shape+"."+field] || !isZero(value)
			}
		}
	}
	for field, is := range filled {
		require.NotEqual(t, is, zero[field] != "", "%s: give it a value in one golden object; or it has one and is no exception", field)
	}
}

func isZero(value any) bool {
	switch v := value.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return value == nil || value == false || value == "" || value == float64(0)
}

// TestListsHaveTheirOrder: which is none of those in which Kubernetes and the store have what is in them.
func TestListsHaveTheirOrder(t *testing.T) {
	t.Parallel()
	w := newGolden(t)
	key := w.key(t, nil)
	w.server.client = interceptor.NewClient(w.alone, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, into, opts...)
			if list, ok := into.(*v1alpha1.DeploymentList); ok {
				for i := range list.Items { // Kubernetes says it to the second
					if list.Items[i].Name == "waiting-2" {
						list.Items[i].CreationTimestamp.Time = list.Items[i].CreationTimestamp.Add(time.Hour)
					}
				}
			}
			return err
		},
	})
	for at, want := range map[string]struct {
		field string
		order []string
	}{
		"/environments": {"name", []string{"production", "Alpha", "spare", "staging"}},
		"/deployments?environment_id={environment}": {"id", []string{"{newer}", "{waiting}", "{building}", "{failed}", "{deployment}"}},
		"/connectors?environment_id={environment}":  {"name", []string{"A-results", "Nightly", "tickets"}},
	} {
		t.Run(at, func(t *testing.T) {
			_, body := w.call(t, key, http.MethodGet, sample{path: at}.fill(t, w.ids), "")
			var order []string
			for _, item := range decode[[]map[string]any](t, body) {
				order = append(order, item[want.field].(string))
			}
			for i, one := range want.order {
				want.order[i] = sample{path: one}.fill(t, w.ids)
			}
			require.Equal(t, want.order, order)
		})
	}
}

// on is a day in 2026, and a time on it that is another one for each hour.
func on(hour int) time.Time { return time.Date(2026, 1, 2, hour, 4, 5, 678_000_000, time.UTC) }

// newGolden is a past of known times, where no two are the same, with one of each.
func newGolden(t testing.TB) *past {
	t.Helper()
	p := newPast(t)
	p.goldenEnvironments(t)
	p.goldenConnectors(t)
	p.goldenDeployments(t)
	p.exec(t, `UPDATE open_runs SET queued_at = $1`, time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	p.exec(t, `UPDATE ended_runs SET started_at = ended_at - 2000000 WHERE id = $1`, p.completed.String())
	p.exec(t, `INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, at, currency, cost_nanos)
		VALUES ($1, $2, 1, 'openai/gpt-5', 2, 3, 1, 1, 5, $3, 'USD', 4200000), ($1, $2, 2, 'ours/small', 1, 1, 0, 0, 2, $3, '', 0)`, p.projectID.String(), p.completed.String(), on(5).UnixMicro())
	run, err := p.db.Run(t.Context(), store.Key{ProjectID: p.projectID, ID: p.completed})
	require.NoError(t, err)
	p.ids["last_ended"] = run.EndedAt.UTC().Format(time.RFC3339Nano)
	gone, err := p.db.Run(t.Context(), store.Key{ProjectID: p.projectID, ID: p.failed})
	require.NoError(t, err)
	p.ids["last_failed"] = gone.EndedAt.UTC().Format(time.RFC3339Nano)
	return p
}

func (p *past) goldenEnvironments(t testing.TB) {
	t.Helper()
	p.ids["project"] = p.projectID.String()
	p.ids["crm"] = v1alpha1.ProjectObjectID(p.projectID, store.KindConnector, "production.crm").String()
	project := &v1alpha1.Project{}
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: v1alpha1.ProjectName}, project))
	project.Status.GitWebhookURL = "https://hooks.example.com/git/1"
	require.NoError(t, p.client.Status().Update(t.Context(), project))
	project.Spec.DefaultEnvironment = "production"
	require.NoError(t, p.client.Update(t.Context(), project))

	alpha := &v1alpha1.Environment{ObjectMeta: p.meta("zulu"), Spec: v1alpha1.EnvironmentSpec{
		DisplayName: "Alpha", Kind: v1alpha1.EnvironmentTest, Git: v1alpha1.EnvironmentGit{Branch: "develop", AutoDeploy: true}, Suspend: true,
	}}
	replicas, most := int32(3), int32(5)
	alpha.Spec.Runner = v1alpha1.RunnerPool{MinReplicas: &replicas, MaxReplicas: &most, Concurrency: 7, Resources: v1alpha1.RunnerResources{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *quantity("250m")}, Limits: corev1.ResourceList{corev1.ResourceMemory: *quantity("1Gi")},
	}}
	p.create(t, alpha)
	alpha.Status.TestSession = &v1alpha1.TestSession{Holder: "anna", ExpiresAt: metav1.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)}
	v1alpha1.MarkStalled(alpha, v1alpha1.ReasonSlugTaken, "another environment has its slug")
	p.written(t, "alpha", alpha)
	production := &v1alpha1.Environment{}
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "production"}, production))
	production.Spec.TestEnvironment, production.Spec.Git.Commit = "zulu", "9f2c1d0e8b7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e"
	require.NoError(t, p.client.Update(t.Context(), production))
	v1alpha1.MarkReady(production, "")
	production.Status.LiveDeploymentID = p.ids["deployment"]
	p.written(t, "environment", production)
}

func (p *past) goldenConnectors(t testing.TB) {
	t.Helper()
	p.conn.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"}
	p.written(t, "connector", p.conn)
	results := p.connectorNamed(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.DisplayName, c.Spec.Mode, c.Spec.Webhook.URL = "A-results", v1alpha1.ModeOutbound, "https://a.example"
		c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"}
	})
	p.written(t, "results", results)
	link := &v1alpha1.ConnectorLink{ObjectMeta: p.meta("results-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "results", Agent: "hello"}}
	p.create(t, link)
	p.ids["results_link"] = link.Status.ID
	link.MarkAgentUnknown(nil)
	require.NoError(t, p.client.Status().Update(t.Context(), link))
	off := false
	nightly := p.connectorNamed(t, "nightly", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true", v1alpha1.LabelRetired: "true", v1alpha1.LabelActivation: "7"}
		c.Spec.DisplayName, c.Spec.Webhook, c.Spec.Enabled = "Nightly", nil, &off
		c.Spec.Cron = &v1alpha1.CronConnector{Schedule: "30 3 * * *"}
	})
	nightly.MarkDisabled()
	p.written(t, "nightly", nightly)
	p.exec(t, `INSERT INTO cron_ticks (project_id, connector_id, schedule, time_zone, active, planned, due_at, last_tick_at)
		VALUES ($1, $2, '30 3 * * *', 'UTC', TRUE, TRUE, $3, $4)`, p.projectID.String(), nightly.Status.ID, on(4).UnixMicro(), on(3).UnixMicro())
}

func (p *past) goldenDeployments(t testing.TB) {
	t.Helper()
	p.ids["failed"] = p.failTests(t).String()
	p.ids["building"] = p.building(t).String() // the later, which would supersede one that is open
	require.NoError(t, p.db.ReportBuild(t.Context(), store.Key{ProjectID: p.projectID, ID: p.id(t, "building")}, store.BuildReport{Phase: store.PhaseTesting}))
	for name, hour := range map[string]int{"deployment": 0, "failed": 4, "building": 8} {
		p.exec(t, `UPDATE deployments SET created_at = $2, started_at = $3, ended_at = CASE WHEN ended_at IS NULL THEN NULL ELSE $4 END,
			activated_at = CASE WHEN activated_at IS NULL THEN NULL ELSE $5 END WHERE id = $1`, p.ids[name],
			on(hour).UnixMicro(), on(hour+1).UnixMicro(), on(hour+2).UnixMicro(), on(hour+3).UnixMicro())
	}
	live := p.deploymentObject(t, p.ids["deployment"])
	live.Status.ActivationRank = 7
	live.Status.CommitStatus = &v1alpha1.DeploymentCommitStatus{State: "Pending", Reason: v1alpha1.CommitStatusRefused, Message: "403"}
	require.NoError(t, p.client.Status().Update(t.Context(), live))
	building := p.deploymentObject(t, p.ids["building"])
	building.MarkBuilding(v1alpha1.StepTesting)
	require.NoError(t, p.client.Status().Update(t.Context(), building))
	for name, object := range map[string]string{"waiting": "waiting-1", "newer": "waiting-2"} {
		d := &v1alpha1.Deployment{ObjectMeta: p.meta(object), Spec: v1alpha1.DeploymentSpec{
			Environment: "production", Source: uploadedSource("sha256:" + strings.Repeat("b", 64)),
			SkipTests: true, SkipFailedConnectors: true, RedeployOf: v1alpha1.DeploymentID(p.ids["deployment"]),
		}}
		p.create(t, d)
		p.ids[name], p.ids[name+"_created"] = d.Status.ID, d.CreationTimestamp.UTC().Format(time.RFC3339)
	}
}

// written writes an object with its status, by a program whose clock is ahead: when it was changed
// is not when it was created.
func (p *past) written(t testing.TB, name string, o v1alpha1.ConditionedObject) {
	t.Helper()
	object, was := o.(client.Object), o.DeepCopyObject().(v1alpha1.ConditionedObject)
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "ahead", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(),
		Time: &metav1.Time{Time: time.Date(2100, 5, 6, 7, 8, 9, 0, time.UTC)}, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`),
	}})
	require.NoError(t, p.client.Update(t.Context(), object))
	*o.CommonStatus() = *was.CommonStatus()
	if e, ok := o.(*v1alpha1.Environment); ok {
		e.Status = was.(*v1alpha1.Environment).Status
	}
	require.NoError(t, p.client.Status().Update(t.Context(), object))
	p.ids[name], p.ids[name+"_created"] = idOf(o), object.GetCreationTimestamp().UTC().Format(time.RFC3339)
}
