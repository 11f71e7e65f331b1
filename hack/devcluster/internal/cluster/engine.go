// SPDX-License-Identifier: Apache-2.0

// Package cluster brings a cluster up and down by one of three engines: kind,
// plain processes of this host, or a cluster that somebody else runs.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

// The engines by name.
const (
	EngineAuto    = "auto"
	EngineKind    = "kind"
	EngineLocal   = "local"
	EngineCurrent = "current"
)

// engineProbe bounds the question whether a Docker engine answers.
const engineProbe = 10 * time.Second

// Options are what every engine works with.
type Options struct {
	Dir     layout.Dir
	Engine  string                         // one of the engines' names
	Builder func() (*build.Builder, error) // finds the source; only called where something may be built
	Log     *progress.Log                  // what is being done
	Out     io.Writer                      // what was asked for
}

// Engine runs a cluster.
type Engine interface {
	// Build makes the binaries that Up needs, and changes nothing else.
	Build(ctx context.Context) error
	// Up returns when the node is ready. A cluster that is up stays as it is.
	Up(ctx context.Context) error
	// Down removes the cluster. The error tells what could not be removed.
	Down(ctx context.Context) error
	// Status prints how the cluster is; the error is ErrNotUp if it is not up.
	Status(ctx context.Context) error
	// LoadImage imports an archive of images for pods to use.
	LoadImage(ctx context.Context, archive string) error
	// Switch starts or stops one component.
	Switch(ctx context.Context, component string, on bool) error
	// Access returns the path of a kubeconfig, and that of kubectl, which is
	// empty where there is none.
	Access() (kubeconfig, kubectl string, err error)
}

// ErrNotUp says that a cluster is not there, or not all of it.
var ErrNotUp = errors.New("the cluster is not up; bring it up with `devcluster up`")

// Choose returns the engine that was asked for, that of the cluster that is
// there, or the one that fits the host.
func Choose(ctx context.Context, o Options) (Engine, error) {
	engines := map[string]Engine{
		EngineKind: &kind{o}, EngineLocal: &local{o}, EngineCurrent: &current{o},
	}
	recorded, err := os.ReadFile(o.Dir.Engine())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading which engine runs the cluster: %w", err)
	}
	there := strings.TrimSpace(string(recorded))
	name := o.Engine
	if name == EngineAuto || name == "" {
		name = there
	}
	if name == "" {
		name = EngineLocal
		if dockerAnswers(ctx) {
			name = EngineKind
		}
	}
	engine, ok := engines[name]
	if !ok {
		return nil, fmt.Errorf("%q is no engine; CLUSTER and --engine take auto, kind, local or current", name)
	}
	if there != "" && there != name && name != EngineCurrent {
		return nil, fmt.Errorf("the cluster in %s is run by %s, not by %s; take it down first", o.Dir, there, name)
	}
	return engine, nil
}

// dockerAnswers asks the engine, for the client alone is of no use.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, engineProbe)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}

// record remembers who runs the cluster. It makes the state folder.
func (o Options) record(engine string) error {
	if err := os.MkdirAll(string(o.Dir), 0o755); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	if err := os.WriteFile(o.Dir.Engine(), []byte(engine+"\n"), 0o644); err != nil {
		return fmt.Errorf("recording the engine: %w", err)
	}
	return nil
}

// kubectl returns the path of one: that of this cluster, the PATH's, or one
// built earlier. It is empty where there is none.
func (o Options) kubectl() string {
	if path := o.Dir.Bin("kubectl"); executable(path) {
		return path
	}
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// say prints a result.
func (o Options) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(o.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// runTool runs a program of the PATH with its output shown. One that the PATH
// lacks is run by go from its module, if there is one.
func (o Options) runTool(ctx context.Context, module string, args ...string) error {
	if _, err := exec.LookPath(args[0]); err != nil && module != "" {
		args = slices.Concat([]string{"go", "run", module}, args[1:])
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // results go to Out, progress of tools does not
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
