// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/envtest"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

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
