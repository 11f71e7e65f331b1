// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// setting is a variable of an environment with the value that a user sets.
type setting struct {
	name, value string
	sensitive   bool
}

// way is a user interface for the deployment of a project's agents.
type way struct {
	name string
	// set sets variables of the environment dev and keeps all other variables.
	set func(ctx context.Context, t *team, variables ...setting)
	// deploy deploys an example whose files are at the head of the repository's branch.
	deploy func(ctx context.Context, t *team, example, head string)
}

// ways are the objects of Kubernetes, and the command line as its users run it, by the REST API: of
// the repository, and of a folder.
var ways = []way{
	{"by objects", setByObjects, deployByObjects},
	{"by agentctl", setByAgentctl, deployByAgentctl},
	{"by agentctl from a folder", setByAgentctl, uploadByAgentctl},
}

// setByObjects has the sensitive values in a Secret.
func setByObjects(ctx context.Context, t *team, variables ...setting) {
	GinkgoHelper()
	dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
	eventually(ctx, dev, ready(dev))
	before := dev.DeepCopy()
	for _, s := range variables {
		v := v1alpha1.EnvironmentVariable{Name: v1alpha1.VariableName(s.name), Value: ptr.To(s.value)}
		if s.sensitive {
			t.keep(ctx, s)
			v.Value, v.SecretKeyRef = nil, &v1alpha1.SecretKeyReference{Name: "credentials", Key: s.name}
		}
		if known := dev.Variable(v.Name); known != nil {
			*known = v
			continue
		}
		dev.Spec.Variables = append(dev.Spec.Variables, v)
	}
	Expect(cluster.Patch(ctx, dev, client.MergeFrom(before))).To(Succeed())
}

// keep puts a value into the Secret of the team.
func (t *team) keep(ctx context.Context, s setting) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: t.at("credentials")}
	err := cluster.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	secret.StringData = map[string]string{s.name: s.value}
	if apierrors.IsNotFound(err) {
		t.create(ctx, secret)
		return
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.Update(ctx, secret)).To(Succeed())
}

func deployByObjects(ctx context.Context, t *team, _, head string) {
	GinkgoHelper()
	d := t.deploy(ctx, "v1", head)
	eventually(ctx, d, func() bool { return d.Status.Phase.Terminal() })
	Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), d.Status.Message)
	eventually(ctx, d, func() bool { return d.Status.Live })
}

// setByAgentctl passes sensitive values on standard input and checks that agentctl never prints them.
func setByAgentctl(ctx context.Context, t *team, variables ...setting) {
	GinkgoHelper()
	for _, s := range variables {
		if !s.sensitive {
			t.agentctl(ctx, "", "env", "set", s.name+"="+s.value)
			continue
		}
		t.agentctl(ctx, s.value, "env", "set", s.name, "--sensitive")
		Expect(t.agentctl(ctx, "", "env", "get", s.name)).To(ContainSubstring("********"))
	}
}

func deployByAgentctl(ctx context.Context, t *team, _, head string) {
	GinkgoHelper()
	said := t.agentctl(ctx, "", "deploy")
	Expect(said).To(ContainSubstring("live in dev"))
	Expect(t.agentctl(ctx, "", "status")).To(ContainSubstring(head[:7]))
}

func uploadByAgentctl(ctx context.Context, t *team, example, _ string) {
	GinkgoHelper()
	said := t.agentctl(ctx, "", "deploy", "--upload", "../../examples/"+example)
	Expect(said).To(And(ContainSubstring("fetching the upload"), ContainSubstring("live in dev")))
}

// agentctl runs the command line as a user of the REST API and returns its whole output. It sends keys only over TLS or to this
// machine, so the test forwards a local port to the API as kubectl does.
func (t *team) agentctl(ctx context.Context, in string, args ...string) string {
	GinkgoHelper()
	if t.forwarded == "" {
		to, err := url.Parse(cluster.api)
		Expect(err).NotTo(HaveOccurred())
		server := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: httpClient.Transport,
		})
		DeferCleanup(server.Close)
		t.forwarded = server.URL
	}
	command := exec.CommandContext(ctx, "../../bin/agentctl", args...)
	command.Stdin = strings.NewReader(in)
	command.Env = append(os.Environ(), "AGENTPLATFORM_SERVER="+t.forwarded, "AGENTPLATFORM_PROJECT="+t.project.String(), "AGENTPLATFORM_API_KEY="+t.key)
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "agentctl %v: %s", args, out)
	return string(out)
}
