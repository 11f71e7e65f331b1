// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("A private repository", func() {
	It("is fetched over HTTPS, with a password and a CA of its own", func(ctx SpecContext) {
		node := envOr("E2E_NODE_ADDRESS", "10.244.0.1")
		ca, key, err := cert.GenerateSelfSignedCertKey(node, []net.IP{net.ParseIP(node)}, nil)
		Expect(err).NotTo(HaveOccurred())
		repository := secureGit(node, ca, key)
		t := newTeam(ctx, 0)
		t.create(ctx, &corev1.Secret{ObjectMeta: t.at("git"), StringData: map[string]string{
			"username": "team", "password": "s3cret", "ca.crt": string(ca),
		}})
		t.fetch(ctx, repository, "git")
		hash := push(ctx, "v1")
		d := t.deploy(ctx, "v1", hash)
		eventually(ctx, d, func() bool { return d.Status.Live })
		Expect(d.Status.Commit).To(Equal(hash))
		say("built commit %s of %s", hash, repository)

		By("naming the wrong password")
		t.create(ctx, &corev1.Secret{ObjectMeta: t.at("wrong"), StringData: map[string]string{
			"username": "team", "password": "wrong", "ca.crt": string(ca),
		}})
		t.fetch(ctx, repository, "wrong")
		refused := t.deploy(ctx, "v2", push(ctx, "v2"))
		eventually(ctx, refused, func() bool { return refused.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(refused.Status.Message).To(ContainSubstring("credentials"))
		say("%s", refused.Status.Message)
	}, SpecTimeout(5*time.Minute))

	It("is fetched over SSH from a real sshd", func(ctx SpecContext) {
		server := startSSH(ctx, envOr("E2E_NODE_ADDRESS", "10.244.0.1"))
		t := newTeam(ctx, 0)
		t.create(ctx, &corev1.Secret{ObjectMeta: t.at("git"), StringData: map[string]string{
			"identity": server.identity, "known_hosts": server.knownHosts,
		}})
		t.fetch(ctx, server.url, "git")
		d := &v1alpha1.Deployment{ObjectMeta: t.at("v1"), Spec: v1alpha1.DeploymentSpec{
			Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Branch: "main"}},
		}}
		t.create(ctx, d)
		eventually(ctx, d, func() bool { return d.Status.Live })
		Expect(d.Status.Commit).To(Equal(server.head))
		say("built commit %s of %s", server.head, server.url)
	}, SpecTimeout(5*time.Minute))
})

// fetch changes the project's repository, with or without credentials.
func (t *team) fetch(ctx context.Context, repository, secret string) {
	GinkgoHelper()
	project := &v1alpha1.Project{ObjectMeta: t.at("project")}
	eventually(ctx, project, ready(project))
	before := project.DeepCopy()
	project.Spec.Git.URL = repository
	if secret != "" {
		project.Spec.Git.SecretRef = &v1alpha1.SecretReference{Name: v1alpha1.Name(secret)}
	}
	Expect(cluster.Patch(ctx, project, client.MergeFrom(before))).To(Succeed())
	eventually(ctx, project, func() bool { return project.Status.ObservedGeneration == project.Generation })
}

// secureGit serves the cluster's repository over HTTPS with basic authentication and returns its URL.
func secureGit(node string, certificate, key []byte) string {
	GinkgoHelper()
	pair, err := tls.X509KeyPair(certificate, key)
	Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(cluster.git)
	Expect(err).NotTo(HaveOccurred())
	proxy := httputil.NewSingleHostReverseProxy(target)
	listener, err := net.Listen("tcp", net.JoinHostPort(node, "0"))
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "team" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	server.Listener = listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	DeferCleanup(server.Close)
	return "https://" + listener.Addr().String() + "/" + repositoryName()
}

type sshServer struct{ url, identity, knownHosts, head string }

// startSSH runs sshd at an address of the node with a bare repository.
func startSSH(ctx context.Context, node string) sshServer {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	shell := func(command string, args ...string) string {
		GinkgoHelper()
		out, err := exec.CommandContext(ctx, command, args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s %v: %s", command, args, out)
		return strings.TrimSpace(string(out))
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "identity"} {
		shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key))
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(node, "0"))
	Expect(err).NotTo(HaveOccurred())
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	Expect(listener.Close()).To(Succeed())
	Expect(os.MkdirAll("/run/sshd", 0o755)).To(Succeed())
	Expect(os.WriteFile(path("config"), []byte(strings.Join([]string{
		"Port " + port, "ListenAddress " + node, "HostKey " + path("host"), "AuthorizedKeysFile " + path("identity.pub"),
		"PidFile " + path("pid"), "StrictModes no", "PermitRootLogin yes", "PasswordAuthentication no", "UsePAM no",
	}, "\n")+"\n"), 0o600)).To(Succeed())
	server := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", path("config"))
	server.Stderr = GinkgoWriter
	Expect(server.Start()).To(Succeed(), "the package openssh-server is needed")
	DeferCleanup(func() {
		_ = server.Process.Kill() // the process may have exited already
		_ = server.Wait()
	})
	Eventually(ctx, func() error {
		conn, err := net.Dial("tcp", net.JoinHostPort(node, port))
		if err == nil {
			err = conn.Close()
		}
		return err
	}).WithTimeout(patience).Should(Succeed())

	shell("git", "init", "-q", "-b", "main", path("work"))
	for name, content := range agents("ssh") {
		if content == nil {
			continue
		}
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(path("work"), name)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(path("work"), name), []byte(ptr.Deref(content, "")), 0o600)).To(Succeed())
	}
	shell("git", "-C", path("work"), "add", ".")
	shell("git", "-C", path("work"), "-c", "user.name=Team", "-c", "user.email=team@example.com", "commit", "-q", "-m", "agents")
	shell("git", "clone", "-q", "--bare", path("work"), path("agents.git"))
	host, err := os.ReadFile(path("host.pub"))
	Expect(err).NotTo(HaveOccurred())
	identity, err := os.ReadFile(path("identity"))
	Expect(err).NotTo(HaveOccurred())
	return sshServer{
		url: "ssh://root@" + net.JoinHostPort(node, port) + path("agents.git"), identity: string(identity),
		knownHosts: "[" + node + "]:" + port + " " + string(host), head: shell("git", "-C", path("work"), "rev-parse", "HEAD"),
	}
}
