// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/render"
)

func options(t *testing.T, engine string) Options {
	t.Helper()
	return Options{Dir: layout.Dir(t.TempDir()), Engine: engine, Log: progress.New(io.Discard), Out: io.Discard}
}

func TestChoose_PrefersExistingEngine(t *testing.T) {
	t.Parallel()
	o := options(t, EngineAuto)
	require.NoError(t, o.recordEngine(EngineKind))
	engine, err := Choose(t.Context(), o)
	require.NoError(t, err)
	require.IsType(t, &kind{}, engine)

	o.Engine = EngineLocal
	_, err = Choose(t.Context(), o)
	require.ErrorContains(t, err, "take it down first")

	o.Engine = EngineCurrent
	engine, err = Choose(t.Context(), o)
	require.NoError(t, err)
	require.IsType(t, &current{}, engine)
}

func TestChoose_RejectsUnknownEngine(t *testing.T) {
	t.Parallel()
	_, err := Choose(t.Context(), options(t, "swarm"))
	require.ErrorContains(t, err, "auto, kind, local or current")
}

func TestStatus_OfEmptyFolder(t *testing.T) {
	t.Parallel()
	l := &local{options(t, EngineLocal)}
	require.ErrorIs(t, l.Status(t.Context()), ErrNotUp)
	require.ErrorIs(t, l.Switch(t.Context(), layout.APIServer, false), ErrNotUp)
	require.ErrorIs(t, l.LoadImage(t.Context(), "x.tar"), ErrNotUp)
	_, _, err := l.Access()
	require.ErrorIs(t, err, ErrNotUp)
	require.NoError(t, l.Down(t.Context()))
}

func TestSwitch_NamesComponents(t *testing.T) {
	t.Parallel()
	l := &local{options(t, EngineLocal)}
	require.NoError(t, l.recordEngine(EngineLocal))
	require.ErrorContains(t, l.Switch(t.Context(), "nonsense", true), "kube-apiserver, kube-controller-manager")
}

func TestStop_StopsAllComponents(t *testing.T) {
	t.Parallel()
	var started []string
	for _, c := range render.Components("/var/tmp/c") {
		started = append(started, c.Name)
	}
	require.ElementsMatch(t, started, stopOrder)
}

func TestSeeds_MatchTheirPaths(t *testing.T) {
	t.Parallel()
	for _, s := range seedObjects() {
		name := s.object["metadata"].(object)["name"].(string)
		require.True(t, strings.HasSuffix(s.path, "/"+name), s.path)
		require.Contains(t, s.path, s.object["apiVersion"].(string))
	}
}

func TestInstall_LinksAllComponents(t *testing.T) {
	t.Parallel()
	l := &local{options(t, EngineLocal)}
	source := t.TempDir()
	for _, name := range []string{"kube", "containerd", "containerd-shim-runc-v2", "ctr"} {
		require.NoError(t, os.WriteFile(filepath.Join(source, name), []byte(name), 0o755))
	}
	built := binaries{kube: filepath.Join(source, "kube"), containerd: source}
	require.NoError(t, l.install(built))
	require.NoError(t, l.install(built), "twice is fine")
	for _, c := range render.Components(l.Dir) {
		require.True(t, executable(l.Dir.Bin(c.Bin)), c.Bin)
	}
	require.Equal(t, l.Dir.Bin("kubectl"), l.kubectl())
}
