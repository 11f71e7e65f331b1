// SPDX-License-Identifier: Apache-2.0

// Command devcluster brings up a real one-node Kubernetes for development and
// tests: kind where a Docker engine answers, else Kubernetes built from its Go
// modules and run as plain processes. It also finds or builds the binaries
// that envtest needs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		cancel()
		os.Exit(1)
	}
}

// settings are the flags that every command shares.
type settings struct {
	stateDir string // everything the cluster writes; `down` removes it
	cacheDir string // built binaries; `down` keeps it
	engine   string // auto, kind, local or current
}

// envOrDefault returns the environment variable name, or fallback where it is empty.
func envOrDefault(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// defaultCacheDir returns the user's cache folder, or os.TempDir if there is none.
func defaultCacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "agentplatform", "devcluster")
}

func newRootCommand() *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use:   "devcluster",
		Short: "A real one-node Kubernetes for development and tests",
		Long: `devcluster brings up a real one-node Kubernetes.

Where a Docker engine answers it uses kind. Elsewhere (Linux, root, Go and
Debian's packages) it builds Kubernetes from its Go modules and runs it as
plain processes that survive this command. CLUSTER=current uses the cluster
of the current kubeconfig instead.`,
		Example: `  devcluster up                        # builds for 5 to 15 minutes the first time, then takes seconds
  export KUBECONFIG=$(devcluster kubeconfig --path)
  devcluster load-image bin/image.tar  # pods use it with imagePullPolicy: Never
  devcluster stop kube-apiserver && devcluster start kube-apiserver
  devcluster down                      # removes all of it and checks that it did
  export KUBEBUILDER_ASSETS=$(devcluster envtest)`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&s.stateDir, "state-dir", envOrDefault("DEVCLUSTER_STATE", "/var/tmp/agentplatform-devcluster"),
		"folder of everything the cluster writes (DEVCLUSTER_STATE)")
	flags.StringVar(&s.cacheDir, "cache-dir", envOrDefault("DEVCLUSTER_CACHE", defaultCacheDir()),
		"folder of built binaries, kept by down (DEVCLUSTER_CACHE)")
	flags.StringVar(&s.engine, "engine", envOrDefault("CLUSTER", "auto"),
		"auto, kind, local, or current for the cluster of the current kubeconfig (CLUSTER)")
	root.AddCommand(clusterCommands(s)...)
	root.AddCommand(newEnvtestCommand(s))
	return root
}

// builder finds the source of the binaries, starting at the working folder.
func (s *settings) builder(log *progress.Log) (*build.Builder, error) {
	source, err := build.FindSource()
	if err != nil {
		return nil, err
	}
	cache, err := filepath.Abs(s.cacheDir)
	if err != nil {
		return nil, fmt.Errorf("resolving the cache folder: %w", err)
	}
	return &build.Builder{Source: source, Cache: cache, Log: log}, nil
}
