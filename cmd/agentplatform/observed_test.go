// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/store"
)

// patience is the timeout of each wait for a process.
const patience = time.Minute

// command is a subcommand that runs in this process until the test ends.
type command struct {
	t                             *testing.T
	health, metrics, api, gateway string
}

// start runs a subcommand with these flags against the test's Kubernetes API, and
// waits until it is ready.
func start(t *testing.T, name string, flags ...string) *command {
	t.Helper()
	c := &command{t: t, health: testenv.FreeAddr(t), metrics: testenv.FreeAddr(t), api: testenv.FreeAddr(t), gateway: testenv.FreeAddr(t)}
	flags = append(flags, "--health-addr="+c.health, "--metrics-addr="+c.metrics)
	if name != metrics.ProcessFacade {
		flags = append(flags, "--image=agentplatform:test", "--dispatch-url=http://"+c.gateway)
	}
	if name != metrics.ProcessManager {
		flags = append(flags, "--api-addr="+c.api)
	}
	if name == metrics.ProcessAll {
		flags = append(flags, "--public-addr=127.0.0.1:0", "--internal-addr="+c.gateway)
	}
	root := newRootCommand()
	root.SetArgs(append([]string{name}, flags...))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended, name)
	})
	c.eventually(func() bool {
		select {
		case err := <-ended:
			ended <- err
			require.NoError(t, err, "%s ended", name)
		default:
		}
		_, status, err := c.get(c.health, "/readyz")
		return err == nil && status == http.StatusOK
	}, "ready")
	_, status, err := c.get(c.health, "/healthz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	return c
}

func (c *command) eventually(holds func() bool, what string) {
	c.t.Helper()
	require.Eventually(c.t, holds, patience, 50*time.Millisecond, what)
}

func (c *command) get(addr, path string) (body []byte, status int, err error) {
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return body, resp.StatusCode, err
}

// served waits until a metric is there, and returns all.
func (c *command) served(until string) metrictest.Served {
	c.t.Helper()
	var text []byte
	c.eventually(func() bool {
		var err error
		text, _, err = c.get(c.metrics, "/metrics")
		return err == nil && bytes.Contains(text, []byte("\n"+until))
	}, until)
	return metrictest.Parse(c.t, text)
}

// cluster sets KUBECONFIG to the test's Kubernetes API. It creates a namespace for the platform and returns its name.
func cluster(t *testing.T) (namespace string) {
	t.Helper()
	plane := kube.Start(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(kubeconfigOf(plane.Config), path))
	t.Setenv("KUBECONFIG", path)
	namespace = plane.Namespace(t)
	return namespace
}

func kubeconfigOf(config *rest.Config) api.Config {
	out := api.NewConfig()
	out.Clusters["test"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["test"] = &api.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}
	out.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	out.CurrentContext = "test"
	return *out
}

// unknownKey calls the facade with an unknown key.
func (c *command) unknownKey() {
	c.t.Helper()
	c.eventually(func() bool {
		req, err := http.NewRequest(http.MethodGet, "http://"+c.api+"/v1/projects/"+uuid.NewString()+"/environments", nil)
		require.NoError(c.t, err)
		req.Header.Set("Authorization", "Bearer "+keys.Generate().String())
		resp, err := (&http.Client{}).Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		require.Equal(c.t, http.StatusUnauthorized, resp.StatusCode)
		return true
	}, "the facade answers")
}

func TestProcesses_ServeMetricsAndProbes(t *testing.T) {
	system := cluster(t)
	dsn := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(dsn, []byte(testenv.Postgres(t)), 0o600))
	flags := []string{"--store-dsn-file=" + dsn, "--system-namespace=" + system}

	manager := start(t, metrics.ProcessManager, flags...)
	s := manager.served("agentplatform_sweep_refused_objects")
	s.Check(t, metrics.ProcessManager)
	require.NotZero(t, s.Value(t, "agentplatform_store_lease_renewed_timestamp_seconds"))
	require.InEpsilon(t, 1, s.Value(t, "leader_election_master_status"), 0)
	require.Contains(t, s.Metrics, "workqueue_depth")

	waiting := start(t, metrics.ProcessManager, flags...)
	require.Zero(t, waiting.served("agentplatform_build_info").Value(t, "agentplatform_store_lease_failures_total", "reason", "foreign"),
		"one that waits to lead is ready, and has a lease on the store to wait for")

	facade := start(t, metrics.ProcessFacade, flags...)
	facade.unknownKey()
	s = facade.served("agentplatform_api_requests_total")
	s.Check(t, metrics.ProcessFacade)
	require.InEpsilon(t, 1, s.Value(t, "agentplatform_api_refused_requests_total", "reason", "unauthorized"), 0)
	require.InEpsilon(t, 1, s.Value(t, "agentplatform_api_key_lookups_total", "outcome", "answered"), 0)
	require.InEpsilon(t, 1, s.Value(t, "agentplatform_api_requests_total",
		"route", "/v1/projects/{project_id}/environments", "method", "GET", "code", "401"), 0)
}

func TestAll_ServesAllMetrics(t *testing.T) {
	system := cluster(t)
	all := start(t, metrics.ProcessAll, "--sqlite="+filepath.Join(t.TempDir(), "store.db"), "--system-namespace="+system)
	all.unknownKey()
	_, _, err := all.get(all.gateway, "/nothing")
	require.NoError(t, err)
	all.served("agentplatform_sweep_refused_objects").Check(t, metrics.ProcessAll)
}

// holding is a store that returns err for each lease renewal.
type holding struct {
	store.Clusters
	err error
}

func (h holding) HoldCluster(context.Context, string, uuid.UUID) error { return h.err }

func TestCountedLease_CountsRenewalsAndFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		moved map[string]float64
	}{
		"renewed":          {nil, map[string]float64{"agentplatform_store_lease_renewed_timestamp_seconds": 7}},
		"another cluster":  {&store.ForeignClusterError{}, map[string]float64{`agentplatform_store_lease_failures_total{reason="foreign"}`: 1}},
		"another platform": {&store.ForeignPlatformError{}, map[string]float64{`agentplatform_store_lease_failures_total{reason="foreign"}`: 1}},
		"unavailable":      {errors.New("unavailable"), map[string]float64{`agentplatform_store_lease_failures_total{reason="unavailable"}`: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			lease := countedLease{holding{err: c.err}, metrics.NewManager(registry), func() time.Time { return time.Unix(7, 0) }}
			require.ErrorIs(t, lease.HoldCluster(t.Context(), "uid", uuid.Nil), c.err)
			require.Equal(t, c.moved, metrictest.Of(t, registry).Moved())
		})
	}
	registry, ctx := prometheus.NewRegistry(), t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, countedLease{holding{err: context.Canceled}, metrics.NewManager(registry), time.Now}.HoldCluster(ended, "uid", uuid.Nil))
	require.Empty(t, metrictest.Of(t, registry).Moved(), "that the process ends is no failure")
}

// Without an image flag the process uses the image of its own container.
func TestPodImage_ReadsItsOwnContainer(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "manager-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "own:v2"}}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).Build()
	for name, row := range map[string]struct {
		options
		want, fails string
	}{
		"given":        {options{image: "given:v1", podName: "manager-1"}, "given:v1", ""},
		"its own":      {options{podName: "manager-1", containerName: "manager"}, "own:v2", ""},
		"no pod":       {options{}, "", "--image"},
		"another name": {options{podName: "manager-1", containerName: "all"}, "", "--container-name"},
		"gone":         {options{podName: "manager-2", containerName: "manager"}, "", "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			row.namespace = "system"
			image, err := (&process{options: &row.options}).podImage(t.Context(), c)
			require.Equal(t, row.want, image)
			if row.fails != "" {
				require.ErrorContains(t, err, row.fails)
			} else {
				require.NoError(t, err)
			}
		})
	}
}
