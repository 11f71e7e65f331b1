// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

func options(t *testing.T, from string) Options {
	t.Helper()
	log := progress.New(io.Discard)
	return Options{Builder: &build.Builder{Source: t.TempDir(), Cache: t.TempDir(), Log: log}, Log: log, From: from}
}

func fill(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"etcd", "kube-apiserver"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	return dir
}

func TestEnsure_PrefersNamedFolder(t *testing.T) {
	o := options(t, "auto")
	want := fill(t, t.TempDir())
	fill(t, filepath.Join(o.Builder.Cache, "envtest-"+build.KubernetesVersion))
	t.Setenv("KUBEBUILDER_ASSETS", want)
	got, err := Assets(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestEnsure_ReusesBuild(t *testing.T) {
	o := options(t, "auto")
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir()) // named, but empty
	want := fill(t, filepath.Join(o.Builder.Cache, "envtest-"+build.KubernetesVersion))
	got, err := Assets(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestEnsure_ReusesDownload(t *testing.T) {
	t.Parallel()
	o := options(t, "download")
	want := fill(t, t.TempDir())
	pointer := filepath.Join(o.Builder.Cache, "setup-envtest", "folder-"+minorVersion())
	require.NoError(t, os.MkdirAll(filepath.Dir(pointer), 0o755))
	require.NoError(t, os.WriteFile(pointer, []byte(want), 0o644))
	got, err := Assets(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestComplete_RejectsDanglingLink(t *testing.T) {
	t.Parallel()
	dir := fill(t, t.TempDir())
	require.True(t, Complete(dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "etcd")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "etcd")))
	require.False(t, Complete(dir))
	require.False(t, Complete(""))
}

func TestEnsure_ChecksFrom(t *testing.T) {
	t.Parallel()
	_, err := Assets(t.Context(), options(t, "elsewhere"))
	require.ErrorContains(t, err, "none of auto, download, build")
}
