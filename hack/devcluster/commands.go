// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/cluster"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/kubeapi"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/lock"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/provisioner"
)

// chooseEngine returns the engine that the settings lead to.
func (s *settings) chooseEngine(cmd *cobra.Command) (cluster.Engine, error) {
	dir, err := layout.NewDir(s.stateDir)
	if err != nil {
		return nil, err
	}
	log := progress.New(cmd.ErrOrStderr())
	return cluster.Choose(cmd.Context(), cluster.Options{
		Dir: dir, Engine: s.engine, Log: log, Out: cmd.OutOrStdout(),
		Builder: func() (*build.Builder, error) { return s.builder(log) },
	})
}

// action is the work of a command on the engine.
type action func(context.Context, cluster.Engine, []string) error

// exclusively prevents two processes from starting or stopping the same cluster at once. The lock is in the cache folder,
// because the state folder is created and deleted with the cluster.
func (s *settings) exclusively(do action) action {
	return func(ctx context.Context, e cluster.Engine, args []string) error {
		unlock, err := lock.Take(filepath.Join(s.cacheDir, "cluster.lock"), func() {
			fmt.Fprintln(os.Stderr, "waiting for another devcluster to finish")
		})
		if err != nil {
			return err
		}
		defer unlock()
		return do(ctx, e, args)
	}
}

// newCommand returns a command that runs a single action on the engine.
func newCommand(s *settings, use, short string, args cobra.PositionalArgs,
	do action,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := s.chooseEngine(cmd)
			if err != nil {
				return err
			}
			return do(cmd.Context(), engine, args)
		},
	}
}

func clusterCommands(s *settings) []*cobra.Command {
	return []*cobra.Command{
		newCommand(s, "up", "Bring the cluster up, or say that it is", cobra.NoArgs,
			s.exclusively(func(ctx context.Context, e cluster.Engine, _ []string) error { return e.Up(ctx) })),
		newCommand(s, "down", "Remove the cluster and check that nothing is left of it", cobra.NoArgs,
			s.exclusively(func(ctx context.Context, e cluster.Engine, _ []string) error { return e.Down(ctx) })),
		newCommand(s, "build", "Build what up needs, without rights and without starting anything", cobra.NoArgs,
			func(ctx context.Context, e cluster.Engine, _ []string) error { return e.Build(ctx) }),
		newCommand(s, "status", "Say what runs; exit with 1 unless all of it does", cobra.NoArgs,
			func(ctx context.Context, e cluster.Engine, _ []string) error { return e.Status(ctx) }),
		newCommand(s, "load-image <archive>...", "Import image archives (OCI or docker save) for pods to use",
			cobra.MinimumNArgs(1), loadImages),
		newCommand(s, "stop <component>", "Stop one component, e.g. kube-apiserver", cobra.ExactArgs(1),
			func(ctx context.Context, e cluster.Engine, args []string) error { return e.Switch(ctx, args[0], false) }),
		newCommand(s, "start <component>", "Start one component and wait until it is healthy", cobra.ExactArgs(1),
			func(ctx context.Context, e cluster.Engine, args []string) error { return e.Switch(ctx, args[0], true) }),
		newWriteImageCommand(),
		newKubeconfigCommand(s),
		newKubectlCommand(s),
		newProvisionCommand(s),
	}
}

func loadImages(ctx context.Context, e cluster.Engine, archives []string) error {
	for _, archive := range archives {
		path, err := filepath.Abs(archive)
		if err != nil {
			return fmt.Errorf("resolving %s: %w", archive, err)
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("finding the image archive: %w", err)
		}
		if err := e.LoadImage(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func newKubeconfigCommand(s *settings) *cobra.Command {
	var pathOnly bool
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Print the administrator's kubeconfig, or its path", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			engine, err := s.chooseEngine(cmd)
			if err != nil {
				return err
			}
			path, _, err := engine.Access()
			if err != nil {
				return err
			}
			if pathOnly {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(content)
			return err
		},
	}
	cmd.Flags().BoolVar(&pathOnly, "path", false, "print the path only")
	return cmd
}

// newKubectlCommand becomes kubectl, so that its terminal and exit code are
// kubectl's own.
func newKubectlCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "kubectl [arguments]", Short: "Run kubectl with the cluster's kubeconfig", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := s.chooseEngine(cmd)
			if err != nil {
				return err
			}
			kubeconfig, kubectl, err := engine.Access()
			if err != nil {
				return err
			}
			if kubectl == "" {
				return errors.New("there is no kubectl on the PATH")
			}
			env := append(os.Environ(), "KUBECONFIG="+kubeconfig)
			if _, set := os.LookupEnv("KUBECACHEDIR"); !set { // else it fills ~/.kube/cache
				env = append(env, "KUBECACHEDIR="+filepath.Join(filepath.Clean(s.stateDir), "kubectl-cache"))
			}
			return fmt.Errorf("running kubectl: %w", syscall.Exec(kubectl, append([]string{"kubectl"}, args...), env))
		},
	}
}

// newProvisionCommand returns the command of a cluster process. Users do not call it.
func newProvisionCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "provision", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := layout.NewDir(s.stateDir)
			if err != nil {
				return err
			}
			api, err := kubeapi.New(dir)
			if err != nil {
				return err
			}
			loop := &provisioner.Loop{API: api, Folder: dir.Volumes(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			return loop.Run(cmd.Context())
		},
	}
}
