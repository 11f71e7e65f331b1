// SPDX-License-Identifier: Apache-2.0

// Package envtest finds, downloads or builds the two binaries that
// controller-runtime's envtest starts: etcd and kube-apiserver.
package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

const (
	setupEnvtest = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"
	// releaseIndex is the first file that setup-envtest reads. A request for it shows within seconds whether the download can
	// work.
	releaseIndex    = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
	probeTimeout    = 5 * time.Second
	downloadTimeout = 2 * time.Minute
)

// Options configure the sources of the binaries.
type Options struct {
	Builder *build.Builder
	Log     *progress.Log
	From    string // auto, download or build
}

// Assets returns the folder for KUBEBUILDER_ASSETS.
func Assets(ctx context.Context, o Options) (string, error) {
	if o.From != "auto" && o.From != "download" && o.From != "build" {
		return "", fmt.Errorf("--from=%s is none of auto, download, build", o.From)
	}
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); o.From == "auto" && Complete(dir) {
		return dir, nil
	}
	built := filepath.Join(o.Builder.Cache, "envtest-"+build.KubernetesVersion)
	pointer := filepath.Join(o.Builder.Cache, "setup-envtest", "folder-"+minorVersion())
	if o.From != "download" && Complete(built) {
		return built, nil
	}
	if dir, err := os.ReadFile(pointer); err == nil && o.From != "build" && Complete(string(dir)) {
		return string(dir), nil
	}
	if o.From != "build" {
		dir, err := download(ctx, o, pointer)
		if err == nil {
			return dir, nil
		}
		if o.From == "download" || ctx.Err() != nil {
			return "", err
		}
		o.Log.Say("    the usual download of envtest's binaries is not to be had (%s); building them instead", err)
	}
	return built, assemble(ctx, o.Builder, built)
}

// Complete reports whether dir contains the binaries that envtest starts.
func Complete(dir string) bool {
	if dir == "" {
		return false
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		info, err := os.Stat(filepath.Join(dir, name)) // follows links: a link without its target does not count
		if err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// minorVersion is the version without its patch, e.g. 1.36: the download has not
// every patch.
func minorVersion() string {
	v := strings.TrimPrefix(build.KubernetesVersion, "v")
	return v[:strings.LastIndex(v, ".")]
}

// download runs setup-envtest and remembers the folder in pointer.
func download(ctx context.Context, o Options, pointer string) (string, error) {
	if err := probeIndex(ctx); err != nil {
		return "", err
	}
	var dir string
	err := o.Log.Step("downloading envtest's binaries", func() error {
		ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		store := filepath.Dir(pointer)
		cmd := exec.CommandContext(ctx, "go", "run", setupEnvtest, "use", minorVersion()+".x", "-p", "path", "--bin-dir", store)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("running setup-envtest: %w: %s", err, strings.TrimSpace(stderr.String()))
		}
		dir = strings.TrimSpace(string(out))
		if !Complete(dir) {
			return fmt.Errorf("setup-envtest left no etcd and kube-apiserver in %q", dir)
		}
		return os.WriteFile(pointer, []byte(dir), 0o644)
	})
	return dir, err
}

// probeIndex asks for the index of releases.
func probeIndex(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, releaseIndex, nil)
	if err != nil {
		return fmt.Errorf("forming the request for the index of releases: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking for the index of releases: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("asking for the index of releases: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for the index of releases: %s", resp.Status)
	}
	return nil
}

// assemble fills dir with links to the cluster's binary if that is there, else
// to the smaller one, built if need be.
func assemble(ctx context.Context, b *build.Builder, dir string) error {
	names := []string{"etcd", "kube-apiserver", "kubectl"}
	binary, ok := b.CachedKube()
	if !ok {
		names = names[:2] // the smaller binary has no kubectl, and envtest's control plane needs none
		var err error
		if binary, err = b.APIServer(ctx); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of envtest's binaries: %w", err)
	}
	for _, name := range names {
		link := filepath.Join(dir, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replacing a link of envtest's binaries: %w", err)
		}
		if err := os.Symlink(binary, link); err != nil {
			return fmt.Errorf("linking envtest's binaries: %w", err)
		}
	}
	return nil
}
