// SPDX-License-Identifier: Apache-2.0

// Package build builds the binaries of the cluster with the go command. It keeps them in a cache folder, with one subfolder for
// each version of the inputs.
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/lock"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

// Builder builds the targets that are not in its cache.
type Builder struct {
	Source string        // hack/devcluster, which holds the module kube
	Cache  string        // absolute path; made on demand
	Log    *progress.Log // reports the current build, with regular signs of progress
}

// FindSource returns the folder of hack/devcluster. It searches the working folder, the folder of the executable, and all
// parents of both. DEVCLUSTER_SOURCE has precedence.
func FindSource() (string, error) {
	starts := []string{os.Getenv("DEVCLUSTER_SOURCE")}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, start := range starts {
		if dir, ok := sourceAbove(start); ok {
			return dir, nil
		}
	}
	return "", errors.New("finding hack/devcluster/kube: it is neither below nor above the working folder; " +
		"run this inside the repository or set DEVCLUSTER_SOURCE to its hack/devcluster")
}

func sourceAbove(start string) (string, bool) {
	if start == "" {
		return "", false
	}
	for dir := filepath.Clean(start); ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "hack", "devcluster")} {
			if _, err := os.Stat(filepath.Join(candidate, "kube", "kube-apiserver", "main.go")); err == nil {
				return candidate, true
			}
		}
		if dir == filepath.Dir(dir) {
			return "", false
		}
	}
}

// Kube returns the path of the binary that is every component of the cluster.
func (b *Builder) Kube(ctx context.Context) (string, error) { return b.buildBinary(ctx, kubeTarget()) }

// APIServer returns the path of the binary that is etcd and kube-apiserver.
func (b *Builder) APIServer(ctx context.Context) (string, error) {
	return b.buildBinary(ctx, apiserverTarget())
}

// Pause returns the path of the static binary that holds a pod's namespaces.
func (b *Builder) Pause(ctx context.Context) (string, error) {
	return b.buildBinary(ctx, pauseTarget())
}

// Containerd returns the folder of containerd, its runc shim and ctr.
func (b *Builder) Containerd(ctx context.Context) (string, error) {
	return b.outputFolder(ctx, containerdTarget())
}

// CachedKube returns the path of Kube's result if the cache contains it.
func (b *Builder) CachedKube() (string, bool) {
	t := kubeTarget()
	folder, err := t.cacheFolder(b.Source)
	if err != nil || !t.complete(filepath.Join(b.Cache, folder)) {
		return "", false
	}
	return filepath.Join(b.Cache, folder, t.outputs[0]), true
}

func (b *Builder) buildBinary(ctx context.Context, t target) (string, error) {
	dir, err := b.outputFolder(ctx, t)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, t.outputs[0]), nil
}

// outputFolder returns the folder of the target's outputs, built if need be. Two
// processes that want the same take turns.
func (b *Builder) outputFolder(ctx context.Context, t target) (string, error) {
	folder, err := t.cacheFolder(b.Source)
	if err != nil {
		return "", err
	}
	final := filepath.Join(b.Cache, folder)
	if t.complete(final) {
		return final, nil
	}
	unlock, err := lock.Take(filepath.Join(b.Cache, "build.lock"), func() {
		b.Log.Say("    waiting for another build into %s", b.Cache)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if t.complete(final) {
		return final, nil
	}
	err = b.Log.Step("building "+t.title, func() error { return b.runBuild(ctx, t, final) })
	if err != nil {
		return "", fmt.Errorf("building %s: %w", t.title, err)
	}
	return final, b.forgetOthers(t, folder)
}

// runBuild runs the go command into a folder next to final and renames it, so that an interrupted build leaves no result that
// looks complete.
func (b *Builder) runBuild(ctx context.Context, t target, final string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return errors.New("no go command on the PATH; install Go 1.26 or newer from https://go.dev/dl")
	}
	partial := final + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.RemoveAll(final), os.MkdirAll(partial, 0o755)); err != nil {
		return err
	}
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-o", partial + "/"}
	env := append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if t.install {
		args = []string{"install", "-v", "-trimpath", "-buildvcs=false"}
		env = append(env, "GOBIN="+partial)
	}
	cmd := exec.CommandContext(ctx, goTool, append(args, t.args...)...)
	cmd.Dir, cmd.Env = filepath.Join(b.Source, t.dir), env
	if err := runWatched(cmd, b.Log); err != nil {
		return err
	}
	if !t.complete(partial) {
		return fmt.Errorf("go left not all of %s", strings.Join(t.outputs, ", "))
	}
	return os.Rename(partial, final)
}

// forgetOthers removes the other versions of the target from the cache. It does not affect a running cluster, which has
// separate links to its binaries.
func (b *Builder) forgetOthers(t target, keep string) error {
	// The prefix excludes the version, so that kube-v1.36.3 replaces kube-v1.36.2.
	prefix, _, _ := strings.Cut(t.name, "-v")
	entries, err := os.ReadDir(b.Cache)
	if err != nil {
		return fmt.Errorf("reading the cache folder: %w", err)
	}
	old := slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		rest, found := strings.CutPrefix(e.Name(), prefix+"-")
		isVersion := strings.HasPrefix(rest, "v") || t.name == prefix
		return !found || !isVersion || e.Name() == keep
	})
	for _, entry := range old {
		if err := os.RemoveAll(filepath.Join(b.Cache, entry.Name())); err != nil {
			return fmt.Errorf("removing an old build: %w", err)
		}
	}
	return nil
}
