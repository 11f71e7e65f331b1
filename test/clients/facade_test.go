// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

const (
	// patience is the time limit of each step of the platform.
	patience = 2 * time.Minute
	// owner is the user as whom the API key acts.
	owner = "anna"
)

// installation is `agentplatform all` with a real Kubernetes API and SQLite. Its project has an agent and three queued runs,
// which nothing executes.
type installation struct {
	t                        *testing.T
	plane                    *kube.ControlPlane
	namespace                string
	facade, gateway, project string
	key                      keys.Key
}

func install(t *testing.T) *installation {
	t.Helper()
	plane := kube.Start(t)
	i := &installation{t: t, plane: plane, namespace: plane.Namespace(t), key: keys.Generate()}
	dispatch := i.launch()
	i.createProject()
	i.finishBuild(dispatch)
	i.trigger(3)
	return i
}

// launch starts the process until the end of the test, and returns the URL of the dispatch port.
func (i *installation) launch() (dispatch string) {
	i.t.Helper()
	dir := i.t.TempDir()
	binary, kubeconfig, said := filepath.Join(dir, "agentplatform"), filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")
	run(i.t, nil, "../..", "go", "build", "-o", binary, "./cmd/agentplatform")
	require.NoError(i.t, os.WriteFile(kubeconfig, i.plane.Kubeconfig(), 0o600))
	facade, gateway, internal := testenv.FreeAddr(i.t), testenv.FreeAddr(i.t), testenv.FreeAddr(i.t)
	i.facade, i.gateway, dispatch = "http://"+facade, "http://"+gateway, "http://"+internal
	log, err := os.Create(said)
	require.NoError(i.t, err)
	process := exec.Command(binary, "all", "--sqlite="+filepath.Join(dir, "store.db"), "--system-namespace="+i.plane.Namespace(i.t),
		"--image=agentplatform:dev", "--api-addr="+facade, "--public-addr="+gateway, "--internal-addr="+internal, "--dispatch-url="+dispatch,
		"--gateway-url="+i.gateway, "--health-addr="+testenv.FreeAddr(i.t), "--metrics-addr="+testenv.FreeAddr(i.t), "--drain=1s")
	process.Env, process.Stderr = append(os.Environ(), "KUBECONFIG="+kubeconfig), log
	require.NoError(i.t, process.Start())
	require.NoError(i.t, reap.Process("agentplatform", process.Process, "KILL"))
	i.t.Cleanup(func() {
		require.NoError(i.t, process.Process.Signal(syscall.SIGTERM))
		ended := process.Wait()
		pid, err := reap.PIDFile("agentplatform")
		require.NoError(i.t, err)
		require.NoError(i.t, os.Remove(pid))
		require.NoError(i.t, log.Close())
		text, err := os.ReadFile(said)
		require.NoError(i.t, err)
		if i.t.Failed() || ended != nil {
			i.t.Logf("the platform said at last: %s", text[max(0, len(text)-10_000):])
		}
		require.NoError(i.t, ended)
	})
	return dispatch
}

func (i *installation) objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: i.namespace, Name: name}
}

// createProject creates the project, and waits until the facade knows its key.
func (i *installation) createProject() {
	i.t.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}
	project := &v1alpha1.Project{ObjectMeta: i.objectMeta(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/shop.git"}}}
	for _, o := range []kubeclient.Object{
		&rbacv1.Role{ObjectMeta: i.objectMeta("everything"), Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{
			ObjectMeta: i.objectMeta("everything"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "everything"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: owner}},
		},
		project,
		&v1alpha1.APIKey{ObjectMeta: i.objectMeta("laptop"), Spec: v1alpha1.APIKeySpec{
			Hash: i.key.Hash(), KeyID: i.key.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: owner},
		}},
		&v1alpha1.Environment{ObjectMeta: i.objectMeta("dev")},
		&v1alpha1.Deployment{ObjectMeta: i.objectMeta("v1"), Spec: v1alpha1.DeploymentSpec{
			Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
		}},
		&v1alpha1.Connector{ObjectMeta: i.objectMeta("events"), Spec: v1alpha1.ConnectorSpec{
			ID: v1alpha1.UUID(uuid.NewString()), Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationNone},
		}},
		&v1alpha1.ConnectorLink{ObjectMeta: i.objectMeta("events-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "events", Agent: "hello"}},
	} {
		require.NoError(i.t, i.plane.Client.Create(i.t.Context(), o))
	}
	i.plane.AwaitGranted(i.t, v1alpha1.Subject{User: owner}, i.namespace, rule)
	i.eventually(func(c *assert.CollectT) {
		i.readObject(project)
		i.project = project.Status.ID
		require.NotEmpty(c, i.project)
		i.requireSuccess(c, http.MethodGet, i.facade+"/v1/projects/"+i.project+"/environments", "")
	})
}

// finishBuild does the work of the build of the deployment.
func (i *installation) finishBuild(dispatch string) {
	i.t.Helper()
	deployment, token := &v1alpha1.Deployment{ObjectMeta: i.objectMeta("v1")}, &corev1.Secret{ObjectMeta: i.objectMeta("v1-build-token")}
	i.eventually(func(c *assert.CollectT) {
		i.readObject(deployment)
		require.Equal(c, v1alpha1.DeploymentBuilding, deployment.Status.Phase, "%+v", deployment.Status)
	})
	i.readObject(token)
	port, err := dispatchapi.NewClient(dispatchapi.Options{URL: dispatch, Token: string(token.Data[base.TokenKey])})
	require.NoError(i.t, err)
	ctx, stop := context.WithTimeout(i.t.Context(), patience)
	defer stop()
	sum := sha256.Sum256([]byte("bundle"))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	require.NoError(i.t, port.ReportBuild(ctx, dispatchapi.BuildReport{Phase: "testing", Commit: strings.Repeat("a", 40)}))
	require.NoError(i.t, port.PutBundle(ctx, digest, []byte("bundle")))
	require.NoError(i.t, port.FinishBuild(ctx, dispatchapi.BuildResult{BundleDigest: digest, Agents: dispatchapi.Agents{
		{Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml", Config: []byte(`{"name":"hello"}`)},
	}}))
	i.eventually(func(c *assert.CollectT) {
		i.readObject(deployment)
		require.True(c, deployment.Status.Live, "%+v", deployment.Status)
	})
}

// trigger starts a number of runs.
func (i *installation) trigger(runs int) {
	i.t.Helper()
	connector := &v1alpha1.Connector{ObjectMeta: i.objectMeta("events")}
	for range runs {
		i.eventually(func(c *assert.CollectT) {
			i.readObject(connector)
			i.requireSuccess(c, http.MethodPost, connector.Status.URL, `{"name":"Ada"}`)
		})
	}
}

func (i *installation) readObject(o kubeclient.Object) {
	i.t.Helper()
	require.NoError(i.t, i.plane.Client.Get(i.t.Context(), kubeclient.ObjectKeyFromObject(o), o))
}

// requireSuccess checks that a request succeeds.
func (i *installation) requireSuccess(t require.TestingT, method, url, body string) {
	request, err := http.NewRequestWithContext(i.t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(url, i.facade) {
		request.Header.Set("Authorization", "Bearer "+i.key.String())
	}
	response, err := (&http.Client{}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
}

func (i *installation) eventually(holds func(c *assert.CollectT)) {
	i.t.Helper()
	require.EventuallyWithT(i.t, holds, patience, 50*time.Millisecond)
}
