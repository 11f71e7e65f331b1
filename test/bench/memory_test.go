// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// settle is how long a process may take to become idle.
const settle = 5 * time.Second

// BenchmarkMemory measures the memory of each idle process. The yardstick is a Go HTTP server that does nothing.
func BenchmarkMemory(b *testing.B) {
	bin, dir := b.TempDir(), b.TempDir()
	for command, folder := range map[string]string{
		"empty": "./empty", "webhookgw": "../../cmd/webhookgw", "runner": "../../cmd/runner", "agentplatform": "../../cmd/agentplatform",
	} {
		out, err := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(bin, command), folder).CombinedOutput()
		require.NoError(b, err, string(out))
	}
	db := openPostgres(b)
	scene := storebench.NewScene(b, db.store, 1)
	greeter(b, db.store, scene) // stores the runner's token
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(b, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	dsn, token := file("dsn", db.dsn), file("token", tokenOf(scene.Project))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(b, clientcmd.WriteToFile(kubeconfigOf(kube.Start(b).Config), kubeconfig))
	b.Setenv("KUBECONFIG", kubeconfig)
	public, internal, facade := freeAddr(b), freeAddr(b), freeAddr(b)

	empty := memory(b, freeAddr(b), filepath.Join(bin, "empty"))
	common := []string{"--store-dsn-file=" + dsn, "--system-namespace=default"}
	for _, p := range []struct {
		name, ready string
		args        []string
	}{
		{"webhookgw", public, []string{"webhookgw", "--store-dsn-file=" + dsn, "--public-addr=" + public, "--internal-addr=" + internal}},
		{"runner", "", []string{"runner", "serve", "--dispatch-url=http://" + internal, "--token-file=" + token}},
		// The facade waits for the keys that the manager creates.
		{"manager", "", append([]string{"agentplatform", "manager", "--leader-elect=false", "--image=agentplatform:dev", "--dispatch-url=http://" + internal}, common...)},
		{"apiserver", facade, append([]string{"agentplatform", "apiserver", "--api-addr=" + facade}, common...)},
		{"all", "", []string{"agentplatform", "all", "--sqlite=" + filepath.Join(dir, "all.db"), "--system-namespace=default", "--leader-elect=false",
			"--image=agentplatform:dev", "--dispatch-url=http://" + internal, "--public-addr=127.0.0.1:0", "--internal-addr=127.0.0.1:0", "--api-addr=127.0.0.1:0"}},
	} {
		held := memory(b, p.ready, filepath.Join(bin, p.args[0]), p.args[1:]...)
		print(b, Cost("memory/"+p.name, "MiB", held, empty, 0))
	}
}

// memory starts a process that ends with the benchmark and returns its resident
// MiB once it is idle. An address without flags is its only argument.
func memory(b *testing.B, ready, command string, args ...string) float64 {
	b.Helper()
	if len(args) == 0 {
		args = []string{ready}
	}
	p := start(b, command, args...)
	if ready != "" {
		require.Eventually(b, func() bool {
			resp, err := http.Get("http://" + ready)
			if err == nil {
				resp.Body.Close()
			}
			return err == nil
		}, time.Minute, 50*time.Millisecond, "%s", &p.log)
	}
	<-time.After(settle)
	return p.resident(b)
}

// process is a command under measurement.
type process struct {
	*exec.Cmd
	log strings.Builder
}

// start starts a process that ends with the benchmark.
func start(b *testing.B, command string, args ...string) *process {
	b.Helper()
	p := &process{Cmd: exec.CommandContext(context.Background(), command, args...)}
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.Stderr = &p.log
	require.NoError(b, p.Start())
	b.Cleanup(func() {
		_ = p.Process.Kill() // the process may have exited already
		_ = p.Wait()
	})
	return p
}

// resident are the MiB that the process holds, peak the most that it ever held.
func (p *process) resident(b *testing.B) float64 { return p.memory(b, "VmRSS:") }
func (p *process) peak(b *testing.B) float64     { return p.memory(b, "VmHWM:") }

// memory are the MiB of a line of the kernel's about the process.
func (p *process) memory(b *testing.B, line string) float64 {
	b.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "status"))
	require.NoError(b, err, "%s", &p.log)
	_, after, found := strings.Cut(string(status), line)
	require.True(b, found, "%s ended: %s", p.Path, &p.log)
	kilobytes, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	require.NoError(b, err)
	return kilobytes / 1024
}

func freeAddr(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer listener.Close()
	return listener.Addr().String()
}

// kubeconfigOf writes down how a control plane is reached.
func kubeconfigOf(config *rest.Config) api.Config {
	out := api.NewConfig()
	out.Clusters["test"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["test"] = &api.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	out.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	out.CurrentContext = "test"
	return *out
}
