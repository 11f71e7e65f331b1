// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

func load(t *testing.T, dir layout.Dir, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(dir.Cert(name), dir.Key(name))
	require.NoError(t, err)
	return pair.Leaf
}

func TestServerCertificate_HasNames(t *testing.T) {
	t.Parallel()
	dir := layout.Dir(t.TempDir())
	require.NoError(t, Ensure(dir))
	roots := x509.NewCertPool()
	roots.AddCert(load(t, dir, "ca"))

	for name, hosts := range map[string][]string{
		layout.APIServer: {"127.0.0.1", "10.96.0.1", "10.244.0.1", "localhost", "kubernetes",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		"kubelet-server": {"10.244.0.1", "devcluster"},
		"etcd":           {"127.0.0.1", "localhost"},
	} {
		for _, host := range hosts {
			_, err := load(t, dir, name).Verify(x509.VerifyOptions{
				Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			require.NoError(t, err, "%s as %s", name, host)
		}
	}
	_, err := load(t, dir, layout.APIServer).Verify(x509.VerifyOptions{Roots: roots, DNSName: "example.com"})
	require.Error(t, err)
}

func TestClientCertificate_HasRBACIdentity(t *testing.T) {
	t.Parallel()
	dir := layout.Dir(t.TempDir())
	require.NoError(t, Ensure(dir))

	for name, want := range map[string][2]string{
		"admin":                  {"devcluster-admin", "system:masters"},
		"kubelet-client":         {"kube-apiserver-kubelet-client", "system:masters"},
		layout.Kubelet:           {"system:node:devcluster", "system:nodes"},
		layout.ControllerManager: {"system:kube-controller-manager"},
		layout.Scheduler:         {"system:kube-scheduler"},
		layout.Proxy:             {"system:kube-proxy"},
		layout.CoreDNS:           {"system:coredns"},
	} {
		t.Run(name, func(t *testing.T) {
			cert := load(t, dir, name)
			require.Equal(t, want[0], cert.Subject.CommonName)
			if want[1] != "" {
				require.Equal(t, []string{want[1]}, cert.Subject.Organization)
			} else {
				require.Empty(t, cert.Subject.Organization)
			}
			require.NotContains(t, cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth, "%s is no server", name)
			require.True(t, cert.NotAfter.After(time.Now().AddDate(0, 6, 0)))
		})
	}
}

func TestKubeconfig_IsSelfContained(t *testing.T) {
	t.Parallel()
	dir := layout.Dir(t.TempDir())
	require.NoError(t, Ensure(dir))
	var got struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	content, err := os.ReadFile(dir.Kubeconfig())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &got))
	require.Equal(t, "https://10.244.0.1:6443", got.Clusters[0].Cluster.Server)
	require.True(t, x509.NewCertPool().AppendCertsFromPEM(got.Clusters[0].Cluster.CA))
	_, err = tls.X509KeyPair(got.Users[0].User.Cert, got.Users[0].User.Key)
	require.NoError(t, err)

	info, err := os.Stat(dir.Kubeconfig())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestEnsure_KeepsExistingFiles(t *testing.T) {
	t.Parallel()
	dir := layout.Dir(t.TempDir())
	require.NoError(t, Ensure(dir))
	before := load(t, dir, "admin").SerialNumber
	require.NoError(t, Ensure(dir))
	require.Equal(t, before, load(t, dir, "admin").SerialNumber)
}
