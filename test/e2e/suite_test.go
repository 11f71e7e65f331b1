// SPDX-License-Identifier: Apache-2.0

// Package e2e tests an installation of the platform on a real cluster by its public interfaces: manifests, webhooks and the
// REST API. hack/e2e.sh prepares the cluster. The node must run on this machine, because the tests kill processes.
package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

const (
	systemNamespace = "agentplatform-system"
	// patience is the timeout of each wait for the cluster.
	patience = 3 * time.Minute
	interval = 100 * time.Millisecond
)

// cluster is the real thing, set by BeforeSuite.
var cluster struct {
	client.WithWatch
	// split is true for three components on PostgreSQL and false for one process on SQLite.
	split bool
	// gateway, api and git are base URLs of Services.
	gateway, api, git string
	model             *modelServer
}

// Labels that hack/e2e.sh filters by. The other specs behave the same on both installations and
// therefore run on one of them.
var (
	// perInstallation marks a spec that shows something else on each installation.
	perInstallation = Label("per-installation")
	// needsReplicas marks a spec that the installation with one process cannot run: it restarts or
	// drains replicas one by one, or calls the facade by TLS.
	needsReplicas = Label("needs-replicas")
)

func TestPlatform_EndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	connect()
	cluster.split = len(pods(ctx, systemNamespace, client.MatchingLabels{"app.kubernetes.io/component": "webhookgw"})) > 0
	locate(ctx)
	beginAudit(ctx)
	// The bridge's address is the node's in the pods' network.
	cluster.model = startModel(net.JoinHostPort(envOr("E2E_NODE_ADDRESS", "10.244.0.1"), "0"))
})

var _ = AfterSuite(func() {
	if cluster.model != nil {
		cluster.model.server.Close()
	}
})

// The report repeats the failures at the end of the output, because much output may follow the first message.
var _ = ReportAfterSuite("What failed", func(report Report) {
	for _, spec := range report.SpecReports {
		if spec.Failed() {
			why := strings.Join(strings.Fields(spec.Failure.Message), " ")
			say("failed: %s: %s: %.800s", spec.FullText(), spec.Failure.Location, why)
		}
	}
})

// connect creates the client of the cluster in KUBECONFIG.
func connect() {
	GinkgoHelper()
	kubeconfig := os.Getenv("KUBECONFIG")
	Expect(kubeconfig).NotTo(BeEmpty(), "KUBECONFIG is not set: these tests need a cluster, run `make e2e`")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.QPS, config.Burst = 500, 1000
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	cluster.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
}

// locate finds the Services, which have other addresses after a new installation.
func locate(ctx context.Context) {
	GinkgoHelper()
	cluster.gateway = service(ctx, systemNamespace, "agentplatform-gateway")
	cluster.api = service(ctx, systemNamespace, "agentplatform-api")
	if cluster.split {
		cluster.api = strings.Replace(cluster.api, "http://", "https://", 1)
		trustAPI(ctx)
	}
	cluster.git = service(ctx, "demo-git", "gitserver")
}

func service(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	s := &corev1.Service{}
	Expect(cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)).To(Succeed())
	return "http://" + s.Spec.ClusterIP
}

// trustAPI configures the client for the facade. The client calls the facade by its address, but verifies the name and the
// authority of its certificate.
func trustAPI(ctx context.Context) {
	GinkgoHelper()
	certificate := &corev1.Secret{}
	Expect(cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "agentplatform-api-tls"}, certificate)).To(Succeed())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(certificate.Data["ca.crt"])).To(BeTrue())
	httpClient.Transport = newTransport(&tls.Config{
		RootCAs: roots, ServerName: "agentplatform-api." + systemNamespace + ".svc", MinVersion: tls.VersionTLS12,
	})
}

func envOr(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// pods returns the running pods that are not being deleted.
func pods(ctx context.Context, namespace string, labels client.MatchingLabels) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(cluster.List(ctx, list, client.InNamespace(namespace), labels)).To(Succeed())
	var out []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
			out = append(out, pod)
		}
	}
	return out
}

// gatewayPods returns the pods that accept webhooks.
func gatewayPods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	found := pods(ctx, systemNamespace, client.MatchingLabels{"agentplatform.dev/gateway": "true"})
	Expect(found).NotTo(BeEmpty())
	return found
}

// gatewayURLs returns the URL of every replica's webhook port.
func gatewayURLs(ctx context.Context) []string {
	GinkgoHelper()
	var urls []string
	for _, pod := range gatewayPods(ctx) {
		urls = append(urls, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080"))
	}
	return urls
}

// devcluster runs a command of hack/devcluster.
func devcluster(ctx context.Context, args ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", append([]string{"-C", "../../hack/devcluster", "run", "."}, args...)...)
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// kubectl runs a command and returns its output, even if the command fails.
func kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"-C", "../../hack/devcluster", "run", ".", "kubectl"}, args...)...).CombinedOutput()
	return string(out), err
}

// say prints a line for the reader of the test's output.
func say(format string, args ...any) { fmt.Fprintf(os.Stdout, "    "+format+"\n", args...) }

// pause waits in real time, because the outages and loads of these tests have a length.
func pause(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		Fail("the spec's time is over")
	}
}

var httpClient = &http.Client{Transport: newTransport(nil)}

// newTransport returns a transport that closes idle connections before the gateway does. Otherwise a request may cross with the
// gateway's close.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, TLSClientConfig: config, ForceAttemptHTTP2: true}
}
