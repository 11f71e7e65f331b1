// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// neededAnyway are rights that no spec uses, each with the reason why it is there:
// "<group>/<resource> <verb>".
var neededAnyway = map[string]string{
	"events.k8s.io/events patch": "an event that repeats is patched instead of written again",
	"/events patch":              "as above, for events of the leader election",
	"batch/jobs delete":          "a build that is cancelled, or is no longer wanted, is ended",
	"batch/jobs patch":           "a build that has lost its label gets it back",

	// Caches watch with their initial list in the stream; where a server cannot, they list.
	"/configmaps list":                       "a cache whose server streams no initial list",
	"/namespaces list":                       "a cache whose server streams no initial list",
	"/pods list":                             "a cache whose server streams no initial list",
	"/secrets list":                          "a cache whose server streams no initial list",
	"agentplatform.dev/projects list":        "a cache whose server streams no initial list",
	"/pods watch":                            "what a build's pod said when it failed",
	"apps/deployments list":                  "a cache whose server streams no initial list",
	"batch/jobs list":                        "a cache whose server streams no initial list",
	"networking.k8s.io/networkpolicies list": "a cache whose server streams no initial list",
	"/secrets patch":                         "certificates are renewed",

	"agentplatform.dev/apikeys get":        "after a restore of etcd an object is read past the cache",
	"agentplatform.dev/connectorlinks get": "after a restore of etcd an object is read past the cache",
	"agentplatform.dev/connectors get":     "after a restore of etcd an object is read past the cache",
	"agentplatform.dev/deployments get":    "after a restore of etcd an object is read past the cache",
	"agentplatform.dev/environments get":   "after a restore of etcd an object is read past the cache",
	"agentplatform.dev/projects get":       "after a restore of etcd an object is read past the cache",

	"agentplatform.dev/connectors delete":     "a create that fails half-way is undone",
	"agentplatform.dev/connectorlinks delete": "a create that fails half-way is undone",
}

// right is a verb that a rule grants to an account.
type right struct {
	account, namespace, group, resource, name, verb string
}

func (r right) String() string {
	return fmt.Sprintf("%s: %s/%s %s (namespace %q, name %q)", r.account, r.group, r.resource, r.verb, r.namespace, r.name)
}

// usedBy reports whether a call needed the right. An apply that creates an object also needs create.
func (r right) usedBy(c apiCall) bool {
	verb := !c.refused && r.verb == c.verb || r.verb == "create" && c.verb == "patch" && c.code == http.StatusCreated
	return verb && r.account == c.account && r.group == c.group && r.resource == c.resource &&
		(r.namespace == "" || r.namespace == c.namespace) && (r.name == "" || r.name == c.name)
}

var _ = Describe("The REST API", func() {
	It("reads and writes what its role lets it", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		environments := rest[[]struct{ ID string }](ctx, t, http.MethodGet, "/environments", "")
		Expect(environments).To(HaveLen(1))
		query := "?environment_id=" + environments[0].ID
		rest[any](ctx, t, http.MethodGet, "/environments/"+environments[0].ID, "")
		rest[any](ctx, t, http.MethodGet, "/agents"+query, "")
		made := rest[struct{ ID string }](ctx, t, http.MethodPost, "/connectors"+query+"&agent_name=hello",
			`{"name": "made by REST", "type": "webhook", "mode": "inbound"}`)
		Expect(rest[[]any](ctx, t, http.MethodGet, "/connectors"+query, "")).To(HaveLen(1))
		rest[any](ctx, t, http.MethodGet, "/connectors/"+made.ID, "")
		rest[any](ctx, t, http.MethodPost, "/connectors/"+made.ID+"/links", `{"agent_name": "resume"}`)
		links := rest[[]struct{ ID string }](ctx, t, http.MethodGet, "/connectors/"+made.ID+"/links", "")
		Expect(links).To(HaveLen(2))
		renamed := rest[struct{ Name string }](ctx, t, http.MethodPatch, "/connectors/"+made.ID, `{"name": "changed by REST"}`)
		Expect(renamed.Name).To(Equal("changed by REST"))
		changed := rest[struct {
			FilesRequired bool `json:"files_required"`
		}](ctx, t, http.MethodPatch, "/connectors/"+made.ID+"/links/"+links[0].ID, `{"files_required": true}`)
		Expect(changed.FilesRequired).To(BeTrue())
	}, SpecTimeout(5*time.Minute))
})

// rest calls the REST API, which must answer 2xx.
func rest[T any](ctx context.Context, t *team, method, path, body string) (out T) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		status, answer := call(ctx, method, cluster.api+"/v1/projects/"+t.project.String()+path,
			http.Header{"Authorization": {"Bearer " + t.key}}, []byte(body))
		g.Expect(status).To(BeNumerically("~", 250, 50), "%s %s: %s", method, path, answer)
		g.Expect(json.Unmarshal(answer, &out)).To(Succeed())
	}).WithTimeout(patience).WithPolling(2 * interval).Should(Succeed())
	return out
}

// After all specs the report checks two rules: the API server allowed every request of the platform, and the platform used
// every permission that it has.
var _ = ReportAfterSuite("The rights of the platform's accounts", func(ctx SpecContext, report Report) {
	if cluster.WithWatch == nil || audit.calls == nil {
		return // there was no cluster
	}
	collectAudit()
	if len(auditLogs()) == 0 {
		say("this cluster is not of hack/devcluster: rights and calls are not compared")
		return
	}
	var refused, unused []string
	for c := range audit.calls {
		// The API server also denies requests that it allows at other times, while it starts or while the installation is
		// removed.
		needed := right{account: c.account, group: c.group, resource: c.resource, verb: c.verb}
		if c.refused && !slices.ContainsFunc(calls(), needed.usedBy) {
			refused = append(refused, fmt.Sprintf("%+v", c))
		}
	}
	slices.Sort(refused)
	Expect(refused).To(BeEmpty(), "calls that RBAC refused")
	config := report.SuiteConfig
	narrowed := len(config.FocusStrings)+len(config.SkipStrings)+len(config.FocusFiles)+len(config.SkipFiles) > 0 || config.LabelFilter != ""
	if narrowed || !report.SuiteSucceeded {
		say("not all specs ran through: rights that none of them used are not looked for")
		return
	}
	if !cluster.split {
		say("one account has the rights of all programs, also for ports that speak TLS elsewhere: they are compared where each has its own")
		return
	}
	rights := granted(ctx)
	Expect(rights).NotTo(BeEmpty())
	for _, r := range rights {
		_, excepted := neededAnyway[r.group+"/"+r.resource+" "+r.verb]
		if !excepted && !slices.ContainsFunc(calls(), r.usedBy) {
			unused = append(unused, r.String())
		}
	}
	Expect(unused).To(BeEmpty(), "rights that no spec used: take them away, use them in a spec, or say in neededAnyway what they are for")
	say("%d rights of the platform's accounts, all of them used; %d kinds of calls, none refused", len(rights), len(audit.calls))
}, NodeTimeout(time.Minute))

func calls() []apiCall {
	out := make([]apiCall, 0, len(audit.calls))
	for c := range audit.calls {
		out = append(out, c)
	}
	return out
}

// granted returns the permissions of all service accounts in the platform's namespace, as the cluster grants them.
func granted(ctx context.Context) []right {
	GinkgoHelper()
	var out []right
	everywhere := &rbacv1.ClusterRoleBindingList{}
	Expect(cluster.List(ctx, everywhere)).To(Succeed())
	for _, b := range everywhere.Items {
		for _, account := range accounts(b.Subjects) {
			out = append(out, rightsOf(account, "", rules(ctx, "", b.RoleRef))...)
		}
	}
	inside := &rbacv1.RoleBindingList{}
	Expect(cluster.List(ctx, inside)).To(Succeed())
	for _, b := range inside.Items {
		for _, account := range accounts(b.Subjects) {
			out = append(out, rightsOf(account, b.Namespace, rules(ctx, b.Namespace, b.RoleRef))...)
		}
	}
	return out
}

// accounts returns the names of the platform's service accounts among subjects.
func accounts(subjects []rbacv1.Subject) []string {
	var out []string
	for _, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == systemNamespace {
			out = append(out, s.Name)
		}
	}
	return out
}

func rules(ctx context.Context, namespace string, ref rbacv1.RoleRef) []rbacv1.PolicyRule {
	GinkgoHelper()
	if ref.Kind == "Role" {
		role := &rbacv1.Role{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, role)).To(Succeed())
		return role.Rules
	}
	role := &rbacv1.ClusterRole{}
	Expect(cluster.Get(ctx, client.ObjectKey{Name: ref.Name}, role)).To(Succeed())
	return role.Rules
}

func rightsOf(account, namespace string, rules []rbacv1.PolicyRule) []right {
	GinkgoHelper()
	var out []right
	for _, rule := range rules {
		Expect(strings.Join(slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources), " ")).NotTo(ContainSubstring("*"))
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, right{account, namespace, group, resource, name, verb})
					}
				}
			}
		}
	}
	return out
}
