// SPDX-License-Identifier: Apache-2.0

package commitstatus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/commitstatus"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/egress"
)

const (
	reportToken  = "t0ken-of-the-tenant"
	reportCommit = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"
)

func TestCommitStatus_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "commitstatus")
}

// provider is a Gitea server of a project with the environment "dev", and a reconciler.
type provider struct {
	*Fixture
	r           *commitstatus.Reconciler
	project     *v1alpha1.Project
	environment *v1alpha1.Environment
	log         bytes.Buffer

	mu     sync.Mutex
	sent   []string // states with their contexts
	answer int
	// commit is the commit of deployments that reach a phase.
	commit string
	// hangs blocks responses until it is closed. reached reports a waiting request.
	hangs, reached chan struct{}
	// meanwhile runs during a request.
	meanwhile func()
}

func newProvider(ctx context.Context, secret map[string]string) *provider {
	GinkgoHelper()
	p := &provider{answer: http.StatusCreated, commit: reportCommit}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status struct{ State, Context string }
		_ = json.NewDecoder(r.Body).Decode(&status)
		if p.hangs != nil {
			p.reached <- struct{}{}
			select {
			case <-p.hangs:
			case <-r.Context().Done(): // the client has given up, for example after a failure of the test
			}
		}
		if p.meanwhile != nil {
			defer GinkgoRecover()
			p.meanwhile()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, status.State+" "+status.Context)
		w.WriteHeader(p.answer)
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	DeferCleanup(server.Close)
	p.Fixture = New()
	secret["ca.crt"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	p.ExpectApplied(ctx, p.Secret("git", secret))
	p.project = p.ExpectProject(ctx, func(project *v1alpha1.Project) {
		project.Spec.Git = &v1alpha1.ProjectGit{URL: server.URL + "/team/agents", Provider: "Gitea", SecretRef: &v1alpha1.SecretReference{Name: "git"}}
	})
	p.environment = p.ExpectEnvironment(ctx, "dev")
	p.environment.Status.Slug = "the-dev"
	p.ExpectStatus(ctx, p.environment)
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	Expect(err).NotTo(HaveOccurred())
	p.r = &commitstatus.Reconciler{Base: p.Base, Guard: egress.New(rules)}
	return p
}

// at sets a deployment to a phase that begins now, and returns the retry interval.
func (p *provider) at(ctx context.Context, d *v1alpha1.Deployment, phase v1alpha1.DeploymentPhase) time.Duration {
	GinkgoHelper()
	if d.UID == "" {
		p.ExpectApplied(ctx, d)
	}
	now := metav1.NewTime(p.Clock.Now().Truncate(time.Second))
	d.Status.Phase, d.Status.Commit, d.Status.StartedAt = phase, p.commit, &now
	if phase.Terminal() {
		d.Status.EndedAt = &now
	}
	p.ExpectStatus(ctx, d)
	return p.again(ctx, d)
}

// again reconciles a deployment once more and keeps the log.
func (p *provider) again(ctx context.Context, d *v1alpha1.Deployment) time.Duration {
	GinkgoHelper()
	log := funcr.New(func(prefix, args string) { p.log.WriteString(prefix + args) }, funcr.Options{Verbosity: 9})
	return p.ExpectReconciled(ctrl.LoggerInto(ctx, log), p.r, d).RequeueAfter
}

// states returns the states since its last call.
func (p *provider) states() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := p.sent
	p.sent = nil
	return states
}

func (p *provider) answers(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = status
}
