// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

// source is hack/devcluster itself.
var source = filepath.Join("..", "..")

func TestVersion_IsTheModules(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(source, "kube", "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(content), "k8s.io/kubernetes "+KubernetesVersion+"\n")
	require.Contains(t, kubeLDFlags, "gitVersion="+KubernetesVersion)
}

func TestFolder_DependsOnInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := target{name: "thing-v1", title: "a thing", inputs: []string{"main.go"}, args: []string{"./thing"}}
	_, err := target.cacheFolder(dir)
	require.ErrorIs(t, err, os.ErrNotExist)

	write := func(content string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(content), 0o644))
		folder, err := target.cacheFolder(dir)
		require.NoError(t, err)
		return folder
	}
	first := write("one")
	require.Regexp(t, `^thing-v1-[0-9a-f]{12}$`, first)
	require.NotEqual(t, first, write("two"))
	require.Equal(t, first, write("one"))
	target.args = []string{"-tags", "x", "./thing"}
	require.NotEqual(t, first, write("one"))
}

func TestFolder_OfEnvtestIgnoresCluster(t *testing.T) {
	t.Parallel()
	require.NotContains(t, apiserverTarget().inputs, "kube/kube/main.go")
	for _, target := range []target{kubeTarget(), apiserverTarget(), pauseTarget(), containerdTarget()} {
		_, err := target.cacheFolder(source)
		require.NoError(t, err, target.title)
	}
}

func TestBuild_UsesCache(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &Builder{Source: source, Cache: t.TempDir(), Log: progress.New(&out)}
	stale := filepath.Join(b.Cache, "pause-000000000000")
	other := filepath.Join(b.Cache, "pauser-v1")
	require.NoError(t, os.Mkdir(stale, 0o755))
	require.NoError(t, os.Mkdir(other, 0o755))

	first, err := b.Pause(t.Context())
	require.NoError(t, err)
	require.FileExists(t, first)
	require.Contains(t, out.String(), "building the pause container")
	require.NoDirExists(t, stale)
	require.DirExists(t, other)

	out.Reset()
	second, err := b.Pause(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Empty(t, out.String())
}

func TestBuild_ReportsCompilerOutput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &Builder{Source: source, Cache: t.TempDir(), Log: progress.New(&out)}
	broken := target{name: "none", title: "nothing", dir: ".", args: []string{"./no-such-folder"}, outputs: []string{"x"}}
	_, err := b.outputFolder(t.Context(), broken)
	require.ErrorContains(t, err, "no-such-folder")
}

func TestFindSource_SearchesBothDirections(t *testing.T) {
	t.Parallel()
	want, err := filepath.Abs(source)
	require.NoError(t, err)
	for _, start := range []string{want, filepath.Join(want, "kube", "kube"), filepath.Dir(filepath.Dir(want))} {
		got, ok := sourceAbove(start)
		require.True(t, ok, start)
		require.Equal(t, want, got)
	}
	_, ok := sourceAbove(t.TempDir())
	require.False(t, ok)
}

func TestCounter_ReportsProgress(t *testing.T) {
	t.Parallel()
	c := &counter{}
	require.Contains(t, c.progressLine(10*time.Second), "linking")
	for _, line := range []string{
		"go: downloading k8s.io/api v0.36.3", "k8s.io/api/core/v1", "k8s.io/client-go/rest", "main.go:3:1: wrong",
	} {
		c.countLine(line)
	}
	require.Equal(t, "    1m5s: 1 modules fetched, 2 packages compiled, last k8s.io/client-go/rest", c.progressLine(65*time.Second))
	for range 2 * tailLines {
		c.countLine("again")
	}
	require.Len(t, c.tail, tailLines)
}
