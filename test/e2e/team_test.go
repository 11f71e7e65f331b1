// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// keyOwner is the user for whom API keys act, an administrator of each project.
const keyOwner = "e2e"

// team is a namespace with a project that has one environment, dev.
type team struct {
	namespace string
	project   uuid.UUID
	key       string // of the REST API
	forwarded string // where the command line finds that, once it was run
}

func newTeam(ctx context.Context, runners int32) *team {
	GinkgoHelper()
	t := &team{namespace: "e2e-" + strings.ToLower(uuid.NewString()[:8])}
	t.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: t.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	t.create(ctx, &corev1.Secret{ObjectMeta: t.at("model"), StringData: map[string]string{"apiKey": "e2e-key"}})
	for _, o := range t.manifests(runners) {
		t.create(ctx, o)
	}
	project := &v1alpha1.Project{ObjectMeta: t.at(v1alpha1.ProjectName)}
	eventually(ctx, project, ready(project))
	t.project = uuid.MustParse(project.Status.ID)
	DeferCleanup(func(ctx SpecContext) {
		_ = cluster.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}})
	})
	t.giveKey(ctx)
	return t
}

// giveKey creates an API key whose owner has every permission in the namespace.
func (t *team) giveKey(ctx context.Context) {
	GinkgoHelper()
	t.create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: t.at(keyOwner), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agentplatform-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: keyOwner}},
	})
	out, err := exec.CommandContext(ctx, "../../bin/agentctl", "apikey", "create", "e2e", "-n", t.namespace,
		"--owner-user", keyOwner, "--quiet").Output()
	Expect(err).NotTo(HaveOccurred())
	t.key = strings.TrimSpace(string(out))
}

func (t *team) manifests(runners int32) []client.Object {
	return []client.Object{
		&v1alpha1.Project{ObjectMeta: t.at("project"), Spec: v1alpha1.ProjectSpec{
			Git: &v1alpha1.ProjectGit{URL: "http://gitserver.demo-git.svc/" + repositoryName()},
			ModelProviders: []v1alpha1.ModelProvider{{
				Prefix: "fake", Type: v1alpha1.ModelProviderOpenAI, BaseURL: cluster.model.url + "/v1",
				APIKeySecretRef: &v1alpha1.SecretKeyReference{Name: "model", Key: "apiKey"},
			}},
		}},
		&v1alpha1.Environment{ObjectMeta: t.at("dev"), Spec: v1alpha1.EnvironmentSpec{
			Runner: v1alpha1.RunnerPool{MinReplicas: ptr.To(max(runners, 1))},
		}},
	}
}

func (t *team) at(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: t.namespace, Name: name}
}

func (t *team) create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(cluster.Create(ctx, o)).To(Succeed())
}

// eventually watches an object until it is as wanted, which is seen at once and without asking
// again and again.
func eventually(ctx context.Context, o client.Object, want func() bool) {
	GinkgoHelper()
	Eventually(ctx, func() (bool, error) { return watched(ctx, o, want) }).
		WithTimeout(patience).WithPolling(interval).Should(BeTrue(), "%T %s:\n%s", o, o.GetName(), lazy{func() string {
		text, _ := json.MarshalIndent(o, "", " ")
		return string(text)
	}})
}

// watched reports whether an object reached the wanted state before its watch ended.
func watched(ctx context.Context, o client.Object, want func() bool) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	kind, err := apiutil.GVKForObject(o, cluster.Scheme())
	if err != nil {
		return false, err
	}
	list, err := cluster.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return false, err
	}
	events, err := cluster.Watch(ctx, list.(client.ObjectList), client.InNamespace(o.GetNamespace()),
		client.MatchingFields{metav1.ObjectNameField: o.GetName()})
	if err != nil {
		return false, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Added || event.Type == watch.Modified {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(event.Object).Elem())
			if want() {
				return true, nil
			}
		}
	}
	return false, nil
}

// ready and stalled ask an object that eventually has read.
func ready(o v1alpha1.ConditionedObject) func() bool {
	return func() bool { return v1alpha1.IsReady(o) }
}

func stalled(o v1alpha1.ConditionedObject) func() bool {
	return func() bool { return v1alpha1.IsStalled(o) }
}

type lazy struct{ text func() string }

func (l lazy) String() string { return l.text() }

// repositoryName returns the name of the repository for the specs of this process, which run sequentially.
func repositoryName() string { return fmt.Sprintf("agents-%d.git", GinkgoParallelProcess()) }

// commit adds files to the repository and returns the commit.
func commit(ctx context.Context, message string, files map[string]*string) string {
	GinkgoHelper()
	body, err := json.Marshal(map[string]any{"message": message, "files": files})
	Expect(err).NotTo(HaveOccurred())
	status, answer := call(ctx, http.MethodPost, cluster.git+"/"+repositoryName()+"/commit", nil, body)
	Expect(status).To(Equal(http.StatusOK), "%s", answer)
	return strings.TrimSpace(string(answer))
}

// agents returns the files of a repository whose agent `hello` answers with the version.
func agents(version string) map[string]*string {
	llm := func(name, model, tools string) *string {
		return ptr.To(fmt.Sprintf("version: \"1.0\"\nname: %s\ntype: llm\nmodel: %s\nsystem_prompt: Do it.\n%s", name, model, tools))
	}
	files := map[string]*string{
		"agents/_defaults.yaml": nil, "agents/draft.yaml": nil, "agents/polish.yaml": nil, "agents/welcome.yaml": nil,
		"models/draft.yaml": nil, "models/polish.yaml": nil, "tests/hello.yaml": nil, "tests/welcome.yaml": nil,
		ordersPath: nil, ticketsPath: nil,
		"agents/hello.yaml":  llm("hello", "scripted/hello", ""),
		"agents/resume.yaml": llm("resume", "fake/resume", "tools: [current_time]\n"),
		"agents/book.yaml":   llm("book", "fake/book", "tools: [book]\n"),
		"agents/where.yaml":  ptr.To("name: where\nmodel: fake/echo\nsystem_prompt: Somewhere in {env.REGION}.\n"),
		"models/hello.yaml":  ptr.To("steps:\n  - text: hello from " + version + "\n"),
	}
	for i := 1; i < maxLinks; i++ {
		files[fmt.Sprintf("agents/hello-%d.yaml", i)] = llm(fmt.Sprintf("hello-%d", i), "scripted/hello", "")
	}
	return files
}

// push commits a version of the agents.
func push(ctx context.Context, version string) string {
	GinkgoHelper()
	return commit(ctx, version, agents(version))
}

// deploy creates a Deployment of a commit.
func (t *team) deploy(ctx context.Context, name, hash string) *v1alpha1.Deployment {
	GinkgoHelper()
	d := &v1alpha1.Deployment{ObjectMeta: t.at(name), Spec: v1alpha1.DeploymentSpec{
		Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: v1alpha1.GitCommit(hash)}},
	}}
	t.create(ctx, d)
	return d
}

// live deploys a version and waits until it is live.
func (t *team) live(ctx context.Context, version string) *v1alpha1.Deployment {
	GinkgoHelper()
	d := t.deploy(ctx, version, push(ctx, version))
	eventually(ctx, d, func() bool { return d.Status.Live })
	return d
}

// running waits until the given number of runners claim runs, because a deployment can be live before any runner claims runs.
func (t *team) running(ctx context.Context, runners int32) {
	GinkgoHelper()
	environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
	eventually(ctx, environment, func() bool { return environment.Status.Runner.ReadyReplicas == runners })
}

// replaced waits until the pool consists of the given number of ready runners and no runner of an
// earlier configuration is left, which could still claim a run while it stops.
func (t *team) replaced(ctx context.Context, runners int) {
	GinkgoHelper()
	t.running(ctx, int32(runners))
	Eventually(ctx, func() ([]corev1.Pod, error) {
		list := &corev1.PodList{}
		err := cluster.List(ctx, list, client.InNamespace(t.namespace), client.MatchingLabels{"app.kubernetes.io/component": "runner"})
		return list.Items, err
	}).WithTimeout(patience).WithPolling(interval).Should(HaveLen(runners))
}

// hook is a webhook with the values that its caller needs.
type hook struct {
	team   *team
	name   string
	id     string
	secret string
}

// hook creates a connector with one link and waits until both are ready.
func (t *team) hook(ctx context.Context, name string, mode v1alpha1.ConnectorMode, agent string) *hook {
	GinkgoHelper()
	c := &v1alpha1.Connector{ObjectMeta: t.at(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: mode, Webhook: &v1alpha1.WebhookConnector{},
	}}
	l := &v1alpha1.ConnectorLink{ObjectMeta: t.at(name + "-" + agent), Spec: v1alpha1.ConnectorLinkSpec{
		Connector: v1alpha1.ConnectorName(name), Agent: v1alpha1.AgentName(agent),
	}}
	t.create(ctx, c)
	t.create(ctx, l)
	eventually(ctx, c, ready(c))
	eventually(ctx, l, ready(l))
	return t.known(ctx, c)
}

// known reads the values of a connector that a caller needs.
func (t *team) known(ctx context.Context, c *v1alpha1.Connector) *hook {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(cluster.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: c.Status.SecretName}, secret)).To(Succeed())
	return &hook{team: t, name: c.Name, id: c.Status.ID, secret: string(secret.Data["secret"])}
}

// reply is the response of a webhook.
type reply struct {
	Status  int `json:"-"` // HTTP status, not the status field of the body
	Body    []byte
	Detail  string   `json:"detail"`
	RunIDs  []string `json:"run_ids"`
	Started int      `json:"dispatched_to"`
	Result  struct {
		RunID  string `json:"run_id"`
		Status string `json:"status"`
		Output string `json:"output"`
	} `json:"result"`
}

// path returns the webhook's path.
func (h *hook) path() string { return "/hooks/" + h.team.project.String() + "/" + h.id }

// post calls a webhook at a gateway.
func (h *hook) post(ctx context.Context, gateway, body string) reply {
	status, answer := call(ctx, http.MethodPost, gateway+h.path(), http.Header{"X-Service-Secret": {h.secret}}, []byte(body))
	r := reply{Status: status, Body: answer}
	_ = json.Unmarshal(answer, &r) // a body that is not JSON leaves the fields empty
	r.Status = status
	return r
}

// call sends JSON, unless a header sets another content type. Status 0 means that there was no response. Then the text is the
// error.
func call(ctx context.Context, method, url string, header http.Header, body []byte) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, []byte(err.Error())
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, answer
}

// run is an agent run in the REST API.
type run struct {
	Status    string  `json:"status"`
	Output    *string `json:"output"`
	Error     *string `json:"error"`
	ErrorCode *string `json:"error_code"`
	Attempt   int     `json:"attempt"`
}

// run reads an agent run; the zero run when the API did not answer.
func (t *team) run(ctx context.Context, id string) (r run) {
	status, answer := call(ctx, http.MethodGet, cluster.api+"/v1/projects/"+t.project.String()+"/runs/"+id,
		http.Header{"Authorization": {"Bearer " + t.key}}, nil)
	if status == http.StatusOK {
		_ = json.Unmarshal(answer, &r) // no test waits for a zero run
	}
	return r
}

// ends waits until a run has ended.
func (t *team) ends(ctx context.Context, id string) (r run) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		r = t.run(ctx, id)
		return r.Status
	}).WithTimeout(patience).WithPolling(interval).Should(BeElementOf("completed", "failed", "cancelled"), "run %s", id)
	return r
}

// complete waits until all these runs have ended, and checks that they completed. It
// reads them page by page: the API answers two requests a second.
func (t *team) complete(ctx context.Context, ids []string) {
	GinkgoHelper()
	open := map[string]bool{}
	for _, id := range ids {
		open[id] = true
	}
	Eventually(ctx, func() int {
		for cursor, more := "", true; more && len(open) > 0; {
			var page struct {
				Items []struct {
					ID string `json:"id"`
					run
				} `json:"items"`
				NextCursor *string `json:"next_cursor"`
			}
			query := url.Values{"limit": {"100"}}
			if cursor != "" {
				query.Set("cursor", cursor)
			}
			status, answer := call(ctx, http.MethodGet, cluster.api+"/v1/projects/"+t.project.String()+"/runs?"+query.Encode(),
				http.Header{"Authorization": {"Bearer " + t.key}}, nil)
			if status != http.StatusOK || json.Unmarshal(answer, &page) != nil {
				return len(open) // another time
			}
			for _, r := range page.Items {
				if open[r.ID] && slices.Contains([]string{"completed", "failed", "cancelled"}, r.Status) {
					Expect(r.Status).To(Equal("completed"), "run %s", r.ID)
					delete(open, r.ID)
				}
			}
			if more = page.NextCursor != nil; more {
				cursor = *page.NextCursor
			}
		}
		return len(open)
	}).WithTimeout(patience).WithPolling(5*time.Second).Should(BeZero(), "runs that have not ended")
}

// gone waits until a namespace no longer exists.
func gone(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(client.IgnoreNotFound(cluster.Delete(ctx, namespace))).To(Succeed())
	Eventually(ctx, func() bool {
		return apierrors.IsNotFound(cluster.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))
	}).WithTimeout(patience).WithPolling(5 * interval).Should(BeTrue())
}
