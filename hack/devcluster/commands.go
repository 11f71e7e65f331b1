// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/build"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/cluster"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/envtest"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/image"
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

func newEnvtestCommand(s *settings) *cobra.Command {
	from := "auto"
	cmd := &cobra.Command{
		Use:   "envtest",
		Short: "Find, download or build etcd and kube-apiserver and print their folder",
		Long: `envtest prints a folder for KUBEBUILDER_ASSETS on standard output and says on
standard error what it does. It takes the first of: the folder that
KUBEBUILDER_ASSETS names, an earlier download or build, the download of
setup-envtest, a build from the Go modules (about 4 minutes; nothing but Go is
needed for it).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := progress.New(cmd.ErrOrStderr())
			builder, err := s.builder(log)
			if err != nil {
				return err
			}
			dir, err := envtest.Assets(cmd.Context(), envtest.Options{Builder: builder, Log: log, From: from})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from", from, "auto, download or build: where new binaries may come from")
	return cmd
}

// newWriteImageCommand packs static binaries into an image archive, for
// machines that have Go but no container engine.
func newWriteImageCommand() *cobra.Command {
	var out string
	var spec image.Spec
	cmd := &cobra.Command{
		Use:   "write-image <source>=<path in image>...",
		Short: "Write an image archive of static binaries and data, without a container engine",
		Long: `Write an image archive of static binaries and data, without a container engine.

Files that may be executed keep that right; all others are readable by all.`,
		Example: `  devcluster write-image --name agentplatform:dev --out image.tar --entrypoint /agentplatform bin/agentplatform=/agentplatform`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				file, err := imageFile(arg)
				if err != nil {
					return err
				}
				spec.Files = append(spec.Files, file)
			}
			return writeImage(out, spec)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "image.tar", "the archive to write")
	flags.StringVar(&spec.Name, "name", "", "the image's reference, such as agentplatform:dev")
	flags.StringSliceVar(&spec.Entrypoint, "entrypoint", nil, "the command that a container runs")
	flags.StringVar(&spec.User, "user", "65532:65532", "the uid:gid it runs as")
	flags.StringSliceVar(&spec.Env, "env", nil, "NAME=value pairs of its environment")
	cobra.CheckErr(cmd.MarkFlagRequired("name"))
	return cmd
}

func imageFile(arg string) (image.File, error) {
	source, path, ok := strings.Cut(arg, "=")
	if !ok || !strings.HasPrefix(path, "/") {
		return image.File{}, fmt.Errorf("%q is not of the form source=/path/in/image", arg)
	}
	info, err := os.Stat(source)
	if err != nil {
		return image.File{}, fmt.Errorf("finding a file of the image: %w", err)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return image.File{}, fmt.Errorf("reading a file of the image: %w", err)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return image.File{Path: strings.TrimPrefix(path, "/"), Mode: mode, Content: content}, nil
}

func writeImage(path string, spec image.Spec) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating the image archive: %w", err)
	}
	if err := image.Write(out, spec); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
