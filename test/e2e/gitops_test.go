// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// ticketsPath is the path of a connector in the agents' repository.
const ticketsPath = "connectors/tickets.yaml"

// repository is a team's Git repository for Argo CD. It contains all kinds from the samples, and an environment that one
// changed line promotes.
type repository struct {
	dir        string
	team       *team
	serverSide bool
}

func newRepository(t *team, production string, serverSide bool) *repository {
	GinkgoHelper()
	r := &repository{dir: GinkgoT().TempDir(), team: t, serverSide: serverSide}
	Expect(os.CopyFS(filepath.Join(r.dir, "samples"), os.DirFS("../../config/samples"))).To(Succeed())
	r.write("kustomization.yaml", `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [samples, staging.yaml]
patches:
  - target: {kind: Project}
    patch: |
      - {op: replace, path: /spec/git/url, value: "http://gitserver.demo-git.svc/`+repositoryName()+`"}
      - {op: remove, path: /spec/git/secretRef}
      - {op: add, path: /spec/modelProviders/-, value: {prefix: fake, type: OpenAI, baseURL: "`+cluster.model.url+`/v1"}}
  - target: {kind: Deployment, group: agentplatform.dev}
    patch: |
      - {op: replace, path: /spec/source/git, value: {commit: "`+production+`"}}
`)
	return r
}

func (r *repository) write(path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(r.dir, path), []byte(content), 0o600)).To(Succeed())
}

// promote changes one line.
func (r *repository) promote(hash string) {
	GinkgoHelper()
	r.write("staging.yaml", `apiVersion: agentplatform.dev/v1alpha1
kind: Environment
metadata:
  name: staging
spec:
  git:
    commit: "`+hash+`"
`)
}

// argo runs the given command of Argo CD on the current state of the repository and returns the output.
func (r *repository) argo(ctx context.Context, command string) (string, error) {
	GinkgoHelper()
	program := os.Getenv("E2E_GITOPS")
	Expect(program).NotTo(BeEmpty(), "E2E_GITOPS is not set: run these tests by hack/e2e.sh, which builds it with hack/gitops.sh")
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), r.dir)
	Expect(err).NotTo(HaveOccurred())
	manifests, err := made.AsYaml()
	Expect(err).NotTo(HaveOccurred())
	c := exec.CommandContext(ctx, program, fmt.Sprintf("--server-side=%t", r.serverSide), "--namespace", r.team.namespace, command)
	c.Stdin = bytes.NewReader(manifests)
	c.Stderr = GinkgoWriter // client-go writes unrelated lines there
	out, err := c.Output()
	return string(out), err
}

func (r *repository) sync(ctx context.Context) {
	GinkgoHelper()
	out, err := r.argo(ctx, "sync")
	Expect(err).NotTo(HaveOccurred(), out)
}

// inSync triggers three reconciliations of every object and expects the objects to match the repository.
func (r *repository) inSync(ctx context.Context) {
	GinkgoHelper()
	for round := range 3 {
		for _, kind := range []string{"Project", "Environment", "Deployment", "Connector", "ConnectorLink", "APIKey"} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
			Expect(cluster.List(ctx, list, client.InNamespace(r.team.namespace))).To(Succeed())
			Expect(list.Items).NotTo(BeEmpty(), kind)
			for i := range list.Items {
				touched := list.Items[i].DeepCopy()
				annotations := touched.GetAnnotations()
				if annotations == nil {
					annotations = map[string]string{}
				}
				annotations["example.com/round"] = fmt.Sprint(round)
				touched.SetAnnotations(annotations)
				Expect(cluster.Patch(ctx, touched, client.MergeFrom(&list.Items[i]))).To(Succeed())
			}
		}
		pause(ctx, time.Second)
		out, err := r.argo(ctx, "diff")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(HavePrefix("compared "), out)
		say("round %d: %s", round+1, strings.TrimSpace(out))
	}
}

var _ = Describe("A repository of all kinds", func() {
	for _, serverSide := range []bool{false, true} {
		how := "as Argo CD applies by itself"
		if serverSide {
			how = "applied on the server"
		}
		It("stays in sync and is promoted by one line, "+how, func(ctx SpecContext) {
			t := newTeam(ctx, 1)
			one := commit(ctx, "gitops-1", withTickets(agents("gitops-1")))
			two := commit(ctx, "gitops-2", withTickets(agents("gitops-2")))
			commit(ctx, "others", agents("others")) // other specs push, too
			r := newRepository(t, one, serverSide)
			r.promote(one)
			r.sync(ctx)
			production, staging := &v1alpha1.Environment{ObjectMeta: t.at("production")}, &v1alpha1.Environment{ObjectMeta: t.at("staging")}
			for _, e := range []*v1alpha1.Environment{production, staging} {
				eventually(ctx, e, func() bool { return e.Status.LiveCommit == one })
				mirror := &v1alpha1.Connector{ObjectMeta: t.at(e.Name + ".tickets")}
				eventually(ctx, mirror, ready(mirror))
			}
			r.inSync(ctx)

			By("promoting")
			r.promote(two)
			out, err := r.argo(ctx, "diff")
			Expect(err).To(HaveOccurred())
			Expect(out).To(ContainSubstring("Environment/staging"))
			r.sync(ctx)
			eventually(ctx, staging, func() bool { return staging.Status.LiveCommit == two })
			eventually(ctx, production, func() bool { return production.Status.LiveCommit == one })
			r.inSync(ctx)
		}, SpecTimeout(6*time.Minute))
	}
})

func withTickets(files map[string]*string) map[string]*string {
	files[ticketsPath] = ptr.To("type: webhook\nmode: sync\nname: Tickets\nagents: [hello]\n")
	return files
}
