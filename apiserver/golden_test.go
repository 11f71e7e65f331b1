// SPDX-License-Identifier: Apache-2.0

package apiserver_test

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
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
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

// Each field of each shape has a value in one of the files, so a missing or swapped field fails the test.
func TestResponses_MatchGoldenFiles(t *testing.T) {
	t.Parallel()
	w := newGolden(t)
	key := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"agents.view", "connectors.view", "deployments.view", "environments.view"}
	})
	files, err := os.ReadDir("testdata/golden")
	require.NoError(t, err)
	require.Len(t, files, len(golden))
	filled := map[string]bool{}
	for name, at := range golden {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path.Join("testdata/golden", name+".json"))
			require.NoError(t, err)
			status, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, at, w.IDs), "")
			require.Equal(t, http.StatusOK, status, "%s: %s", name, body)
			require.JSONEq(t, apiservertest.FillPath(t, string(text), w.IDs), string(body), "%s: %s", name, body)
			shape, _, _ := strings.Cut(name, "-")
			var object map[string]any
			if json.Unmarshal(body, &object) == nil {
				for field, value := range object {
					filled[shape+"."+field] = filled[shape+"."+field] || !isZero(value)
				}
			}
		})
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

// Kubernetes and the store return the objects in another order.
func TestLists_AreSorted(t *testing.T) {
	t.Parallel()
	w := newGolden(t)
	key := w.CreateKey(t, nil)
	w.Server.Service.Client = interceptor.NewClient(w.FacadeClient, interceptor.Funcs{
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
			_, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, at, w.IDs), "")
			var order []string
			for _, item := range apiservertest.Decode[[]map[string]any](t, body) {
				order = append(order, item[want.field].(string))
			}
			for i, one := range want.order {
				want.order[i] = apiservertest.FillPath(t, one, w.IDs)
			}
			require.Equal(t, want.order, order)
		})
	}
}

// atHour is a day in 2026, and a time on it that is another one for each hour.
func atHour(hour int) time.Time { return time.Date(2026, 1, 2, hour, 4, 5, 678_000_000, time.UTC) }

// newGolden is a past of known times, where no two are the same, with one of each.
func newGolden(t testing.TB) *apiservertest.ProjectWithHistory {
	t.Helper()
	p := apiservertest.NewProjectWithHistory(t)
	goldenEnvironments(t, p)
	goldenConnectors(t, p)
	goldenDeployments(t, p)
	p.ExecuteSQL(t, `UPDATE open_runs SET queued_at = $1`, time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	p.ExecuteSQL(t, `UPDATE ended_runs SET started_at = ended_at - 2000000 WHERE id = $1`, p.CompletedRun.String())
	p.ExecuteSQL(t, `INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, at, currency, cost_nanos)
		VALUES ($1, $2, 1, 'openai/gpt-5', 2, 3, 1, 1, 5, $3, 'USD', 4200000), ($1, $2, 2, 'ours/small', 1, 1, 0, 0, 2, $3, '', 0)`, p.ProjectID.String(), p.CompletedRun.String(), atHour(5).UnixMicro())
	changed := store.DriftedTool{Name: "get", Since: atHour(6), ReportedAt: atHour(7)}
	drift, err := json.Marshal([]store.MCPDrift{{Agent: "hello", Server: "crm", Tools: []store.DriftedTool{changed}}})
	require.NoError(t, err)
	p.ExecuteSQL(t, `UPDATE deployments SET drift = $2 WHERE id = $1`, p.IDs["deployment"], string(drift))
	run, err := p.Store.Run(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.CompletedRun})
	require.NoError(t, err)
	p.IDs["last_ended"] = run.EndedAt.UTC().Format(time.RFC3339Nano)
	gone, err := p.Store.Run(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.FailedRun})
	require.NoError(t, err)
	p.IDs["last_failed"] = gone.EndedAt.UTC().Format(time.RFC3339Nano)
	return p
}

func goldenEnvironments(t testing.TB, p *apiservertest.ProjectWithHistory) {
	t.Helper()
	p.IDs["project"] = p.ProjectID.String()
	p.IDs["crm"] = v1alpha1.ProjectObjectID(p.ProjectID, store.KindConnector, "production.crm").String()
	project := &v1alpha1.Project{}
	require.NoError(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: v1alpha1.ProjectName}, project))
	project.Status.GitWebhookURL = "https://hooks.example.com/git/1"
	require.NoError(t, p.Client.Status().Update(t.Context(), project))
	project.Spec.DefaultEnvironment = "production"
	require.NoError(t, p.Client.Update(t.Context(), project))

	alpha := &v1alpha1.Environment{ObjectMeta: p.Meta("zulu"), Spec: v1alpha1.EnvironmentSpec{
		DisplayName: "Alpha", Kind: v1alpha1.EnvironmentTest, Git: v1alpha1.EnvironmentGit{Branch: "develop", AutoDeploy: true}, Suspend: true,
	}}
	replicas, most := int32(3), int32(5)
	alpha.Spec.Runner = v1alpha1.RunnerPool{MinReplicas: &replicas, MaxReplicas: &most, Concurrency: 7, Resources: v1alpha1.RunnerResources{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *apiservertest.Quantity("250m")}, Limits: corev1.ResourceList{corev1.ResourceMemory: *apiservertest.Quantity("1Gi")},
	}}
	p.Create(t, alpha)
	alpha.Status.TestSession = &v1alpha1.TestSession{Holder: "anna", ExpiresAt: metav1.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)}
	v1alpha1.MarkStalled(alpha, v1alpha1.ReasonSlugTaken, "another environment has its slug")
	requireGolden(t, p, "alpha", alpha)
	production := &v1alpha1.Environment{}
	require.NoError(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "production"}, production))
	production.Spec.TestEnvironment, production.Spec.Git.Commit = "zulu", "9f2c1d0e8b7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e"
	require.NoError(t, p.Client.Update(t.Context(), production))
	v1alpha1.MarkReady(production, "")
	production.Status.LiveDeploymentID = p.IDs["deployment"]
	requireGolden(t, p, "environment", production)
}

func goldenConnectors(t testing.TB, p *apiservertest.ProjectWithHistory) {
	t.Helper()
	p.Connector.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"}
	requireGolden(t, p, "connector", p.Connector)
	results := p.CreateConnector(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.DisplayName, c.Spec.Mode, c.Spec.Webhook.URL = "A-results", v1alpha1.ModeOutbound, "https://a.example"
		c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"}
	})
	requireGolden(t, p, "results", results)
	link := &v1alpha1.ConnectorLink{ObjectMeta: p.Meta("results-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "results", Agent: "hello"}}
	p.Create(t, link)
	p.IDs["results_link"] = link.Status.ID
	link.MarkAgentUnknown(nil)
	require.NoError(t, p.Client.Status().Update(t.Context(), link))
	off := false
	nightly := p.CreateConnector(t, "nightly", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true", v1alpha1.LabelRetired: "true", v1alpha1.LabelActivation: "7"}
		c.Spec.DisplayName, c.Spec.Webhook, c.Spec.Enabled = "Nightly", nil, &off
		c.Spec.Cron = &v1alpha1.CronConnector{Schedule: "30 3 * * *"}
	})
	nightly.MarkDisabled()
	requireGolden(t, p, "nightly", nightly)
	p.ExecuteSQL(t, `INSERT INTO cron_ticks (project_id, connector_id, schedule, time_zone, active, planned, due_at, last_tick_at)
		VALUES ($1, $2, '30 3 * * *', 'UTC', TRUE, TRUE, $3, $4)`, p.ProjectID.String(), nightly.Status.ID, atHour(4).UnixMicro(), atHour(3).UnixMicro())
}

func goldenDeployments(t testing.TB, p *apiservertest.ProjectWithHistory) {
	t.Helper()
	p.IDs["failed"] = p.FailedDeployment(t).String()
	p.IDs["building"] = p.OpenDeployment(t).String() // the later, which would supersede one that is open
	require.NoError(t, p.Store.ReportBuild(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "building")}, store.BuildReport{Phase: store.PhaseTesting}))
	for name, hour := range map[string]int{"deployment": 0, "failed": 4, "building": 8} {
		p.ExecuteSQL(t, `UPDATE deployments SET created_at = $2, started_at = $3, ended_at = CASE WHEN ended_at IS NULL THEN NULL ELSE $4 END,
			activated_at = CASE WHEN activated_at IS NULL THEN NULL ELSE $5 END WHERE id = $1`, p.IDs[name],
			atHour(hour).UnixMicro(), atHour(hour+1).UnixMicro(), atHour(hour+2).UnixMicro(), atHour(hour+3).UnixMicro())
	}
	live := p.DeploymentObject(t, p.IDs["deployment"])
	live.Status.ActivationRank = 7
	live.Status.CommitStatus = &v1alpha1.DeploymentCommitStatus{State: "Pending", Reason: v1alpha1.CommitStatusRefused, Message: "403"}
	require.NoError(t, p.Client.Status().Update(t.Context(), live))
	building := p.DeploymentObject(t, p.IDs["building"])
	building.MarkBuilding(v1alpha1.StepTesting)
	require.NoError(t, p.Client.Status().Update(t.Context(), building))
	for name, object := range map[string]string{"waiting": "waiting-1", "newer": "waiting-2"} {
		d := &v1alpha1.Deployment{ObjectMeta: p.Meta(object), Spec: v1alpha1.DeploymentSpec{
			Environment: "production", Source: v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: v1alpha1.UploadDigest("sha256:" + strings.Repeat("b", 64))}},
			SkipTests: true, SkipFailedConnectors: true, RedeployOf: v1alpha1.DeploymentID(p.IDs["deployment"]),
		}}
		p.Create(t, d)
		p.IDs[name], p.IDs[name+"_created"] = d.Status.ID, d.CreationTimestamp.UTC().Format(time.RFC3339)
	}
}

// requireGolden writes an object with its status, by a program whose clock is ahead: when it was changed
// is not when it was created.
func requireGolden(t testing.TB, p *apiservertest.ProjectWithHistory, name string, o v1alpha1.ConditionedObject) {
	t.Helper()
	object, was := o.(client.Object), o.DeepCopyObject().(v1alpha1.ConditionedObject)
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "ahead", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(),
		Time: &metav1.Time{Time: time.Date(2100, 5, 6, 7, 8, 9, 0, time.UTC)}, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`),
	}})
	require.NoError(t, p.Client.Update(t.Context(), object))
	*o.CommonStatus() = *was.CommonStatus()
	if e, ok := o.(*v1alpha1.Environment); ok {
		e.Status = was.(*v1alpha1.Environment).Status
	}
	require.NoError(t, p.Client.Status().Update(t.Context(), object))
	p.IDs[name], p.IDs[name+"_created"] = rest.ObjectID(o), object.GetCreationTimestamp().UTC().Format(time.RFC3339)
}
