// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/image"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/render"
)

const version = build.KubernetesVersion

// binaries holds the paths of the cluster's binaries.
type binaries struct {
	kube       string // every component of Kubernetes, etcd and CoreDNS
	containerd string // folder of containerd, its shim and ctr
	pause      string
}

// buildBinaries builds the binaries that are not in the cache.
func (l *local) buildBinaries(ctx context.Context) (binaries, error) {
	builder, err := l.Builder()
	if err != nil {
		return binaries{}, err
	}
	var b binaries
	if b.pause, err = builder.Pause(ctx); err != nil {
		return b, err
	}
	if b.containerd, err = builder.Containerd(ctx); err != nil {
		return b, err
	}
	b.kube, err = builder.Kube(ctx)
	return b, err
}

// install puts links to the binaries into the state folder, each component
// under its name, and a copy of this program, which `go run` deletes when it
// ends.
func (l *local) install(b binaries) error {
	if err := os.MkdirAll(l.Dir.Path("bin"), 0o755); err != nil {
		return fmt.Errorf("making the folder of executables: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	sources := map[string]string{"kube": b.kube, "devcluster": self}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		sources[name] = filepath.Join(b.containerd, name)
	}
	for name, source := range sources {
		if err := placeFile(source, l.Dir.Bin(name)); err != nil {
			return fmt.Errorf("installing %s: %w", name, err)
		}
	}
	names := []string{"kubectl"}
	for _, c := range render.Components(l.Dir) {
		if _, own := sources[c.Bin]; !own {
			names = append(names, c.Bin)
		}
	}
	for _, name := range names {
		if err := replace(l.Dir.Bin(name), func(path string) error { return os.Symlink("kube", path) }); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return nil
}

// placeFile links source to path, or copies it where both are on different file
// systems. A process that runs the old file keeps it.
func placeFile(source, path string) error {
	return replace(path, func(path string) error {
		if os.Link(source, path) == nil {
			return nil
		}
		in, err := os.Open(source)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	})
}

// replace creates a file next to path and renames it over path.
func replace(path string, make func(string) error) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := make(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// runContainerd runs containerd's tool in the kubelet's namespace.
func (l *local) runContainerd(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", l.Dir.Socket(), "--namespace", layout.ContainerSpace}, args...)
	out, err := exec.CommandContext(ctx, l.Dir.Bin("ctr"), args...).CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("running ctr: %w: %s", err, said)
	}
	return said, nil
}

// loadPause builds the image of the container that holds a pod's namespaces.
func (l *local) loadPause(ctx context.Context, binary string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the pause container's binary: %w", err)
	}
	var archive bytes.Buffer
	pause := image.Spec{
		Name: layout.PauseImage, Entrypoint: []string{"/entrypoint"}, User: "65535:65535",
		Files: []image.File{{Path: "entrypoint", Mode: 0o755, Content: content}},
	}
	if err := image.Write(&archive, pause); err != nil {
		return err
	}
	path := l.Dir.Path("pause.tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the pause container's image: %w", err)
	}
	if _, err := l.runContainerd(ctx, "images", "import", path); err != nil {
		return fmt.Errorf("importing the pause container's image: %w", err)
	}
	return nil
}
