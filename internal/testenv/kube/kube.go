// SPDX-License-Identifier: Apache-2.0

// Package kube gives tests a real Kubernetes API: etcd and kube-apiserver with the project's CRDs.
// All tests of a test binary share one control plane. [Start] can be called any number of times,
// from testing and, with GinkgoTB(), from Ginkgo.
//
// There is only the API: no garbage collector and no controllers for namespaces, Jobs or
// Deployments. Namespaces are never deleted, so each test uses a fresh one, see
// [ControlPlane.Namespace].
package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

// startTimeout limits the start of each of the two servers, because machines that build at the same
// time are slow.
const startTimeout = 2 * time.Minute

// ControlPlane is a running Kubernetes API.
type ControlPlane struct {
	// Config is the administrator's configuration (group system:masters).
	Config *rest.Config
	// Client is the administrator's client, without a cache.
	Client client.Client
	// Scheme contains Kubernetes' own kinds, CRDs and the project's kinds.
	Scheme *runtime.Scheme

	env        *envtest.Environment
	namespaces atomic.Int64
}

var shared struct {
	once    sync.Once
	control *ControlPlane
	err     error
}

// Start returns the test binary's control plane and starts it on the first call. It ends with the
// test binary.
func Start(tb testing.TB) *ControlPlane {
	tb.Helper()
	shared.once.Do(func() { shared.control, shared.err = startControlPlane() })
	if shared.err != nil {
		tb.Fatalf("testenv: %v", shared.err)
	}
	return shared.control
}

func startControlPlane() (*ControlPlane, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	assets, err := binaries(root)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	env := &envtest.Environment{
		Scheme:                   scheme,
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
	}
	if err := configure(env, assets); err != nil {
		return nil, err
	}
	config, err := env.Start()
	if err != nil {
		return nil, fmt.Errorf("starting the control plane of %s: %w", assets, err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making the client of the control plane: %w", err)
	}
	return &ControlPlane{Config: config, Client: c, Scheme: scheme, env: env}, nil
}

// newScheme returns a scheme with all kinds of the tests.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	return scheme, nil
}

// configure keeps the files of both servers in the folder that is removed with the test binary, and
// starts them with a script that registers them there.
func configure(env *envtest.Environment, assets string) error {
	base, err := reap.Dir()
	if err != nil {
		return err
	}
	dir := filepath.Join(base, "kube")
	for _, folder := range []string{"bin", "etcd", "certs"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return fmt.Errorf("making the folders of the control plane: %w", err)
		}
	}
	etcd, err := launcher(filepath.Join(dir, "bin"), filepath.Join(assets, "etcd"))
	if err != nil {
		return err
	}
	apiserver, err := launcher(filepath.Join(dir, "bin"), filepath.Join(assets, "kube-apiserver"))
	if err != nil {
		return err
	}
	server := env.ControlPlane.GetAPIServer()
	server.Path, server.CertDir = apiserver, filepath.Join(dir, "certs")
	env.ControlPlane.Etcd = &envtest.Etcd{Path: etcd, DataDir: filepath.Join(dir, "etcd")}
	return nil
}

// launcher writes the script that registers itself with the reaper and then executes the binary.
func launcher(dir, binary string) (string, error) {
	name := filepath.Base(binary)
	pids, err := reap.PIDFile(name)
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf("#!/bin/sh\necho KILL $$ >'%s'\nexec '%s' \"$@\"\n", pids, binary)
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("writing the launcher of %s: %w", name, err)
	}
	return path, nil
}

// Namespace creates a fresh namespace and returns its name.
func (c *ControlPlane) Namespace(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test-%d", c.namespaces.Add(1))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client.Create(tb.Context(), namespace); err != nil {
		tb.Fatalf("testenv: creating namespace %q: %v", name, err)
	}
	return name
}

// User returns the configuration of a client with that user name and groups. RBAC decides its
// permissions.
func (c *ControlPlane) User(tb testing.TB, name string, groups ...string) *rest.Config {
	tb.Helper()
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		tb.Fatalf("testenv: adding user %q: %v", name, err)
	}
	return user.Config()
}

// Kubeconfig returns an administrator's kubeconfig file for programs that a test starts.
func (c *ControlPlane) Kubeconfig() []byte { return c.env.KubeConfig }

// repository returns the root of the source tree.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the source tree: %w", err)
	}
	const module = "module github.com/agentplatform/agentplatform\n"
	for ; ; dir = filepath.Dir(dir) {
		file, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(file), module) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("looking for the source tree: no go.mod of the project above the working directory")
		}
	}
}
