// SPDX-License-Identifier: Apache-2.0

// Package cluster starts and stops a cluster with one of three engines: kind, plain processes on this host, or a cluster that
// another program manages.
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

// Options configure every engine.
type Options struct {
	Dir     layout.Dir
	Engine  string                         // one of the engines' names
	Builder func() (*build.Builder, error) // finds the source; called only if the engine may build
	Log     *progress.Log                  // progress messages
	Out     io.Writer                      // output of the command
}

// Engine runs a cluster.
type Engine interface {
	// Build builds the binaries that Up needs and changes nothing else.
	Build(ctx context.Context) error
	// Up returns when the node is ready. It does not change a running cluster.
	Up(ctx context.Context) error
	// Down removes the cluster. The error lists the leftovers.
	Down(ctx context.Context) error
	// Status prints how the cluster is; the error is ErrNotUp if it is not up.
	Status(ctx context.Context) error
	// LoadImage imports an archive of images for pods to use.
	LoadImage(ctx context.Context, archive string) error
	// Switch starts or stops one component.
	Switch(ctx context.Context, component string, on bool) error
	// Access returns the paths of a kubeconfig and of kubectl. The path of kubectl is empty if there is none.
	Access() (kubeconfig, kubectl string, err error)
}

// ErrNotUp means that a cluster, or a part of it, does not exist.
var ErrNotUp = errors.New("the cluster is not up; bring it up with `devcluster up`")

// Choose returns the requested engine, the engine of the existing cluster, or the engine that fits the host.
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

// recordEngine creates the state folder and stores the name of the cluster's engine there.
func (o Options) recordEngine(engine string) error {
	if err := os.MkdirAll(string(o.Dir), 0o755); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	if err := os.WriteFile(o.Dir.Engine(), []byte(engine+"\n"), 0o644); err != nil {
		return fmt.Errorf("recording the engine: %w", err)
	}
	return nil
}

// kubectl returns the path of this cluster's kubectl, the kubectl of PATH, or an earlier build. It returns "" if there is none.
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

// printResult prints a result.
func (o Options) printResult(format string, args ...any) error {
	if _, err := fmt.Fprintf(o.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// runTool runs a program and shows its output. If PATH lacks the program, go runs it from its module, if there is one.
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
