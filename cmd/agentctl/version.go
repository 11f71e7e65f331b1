// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// versionOptions are the flags of `version`.
type versionOptions struct {
	restOptions
	output

	clientOnly bool
}

// versionReport has the versions of the program and of the server. Server is "" if it is unknown.
type versionReport struct {
	Client    string `json:"client"`
	GoVersion string `json:"go_version"`
	Platform  string `json:"platform"`
	Server    string `json:"server,omitempty"`
}

// ownVersion returns the text that --version prints.
func ownVersion() string {
	return fmt.Sprintf("%s (%s, %s/%s)", metrics.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersionCommand() *cobra.Command {
	o := &versionOptions{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the server",
		Long: `Print the version of agentctl, and with --server the version of the server. This needs no API
key. The command succeeds even if the server does not respond.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.printVersions(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.restOptions.bindFlags(cmd.Flags())
	o.output.bindFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "do not ask the server")
	return cmd
}

func (o *versionOptions) printVersions(ctx context.Context, out, messages io.Writer) error {
	v := versionReport{Client: metrics.Version(), GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !o.clientOnly && o.server != "" {
		var err error
		if v.Server, err = o.serverVersion(ctx); err != nil {
			fmt.Fprintf(messages, "the version of the server is unknown: %s\n", printableLines(err.Error()))
		}
	}
	if o.output != outputText {
		return o.printValue(out, v)
	}
	fmt.Fprintf(out, "client: %s\n", ownVersion())
	_, err := fmt.Fprintf(out, "server: %s\n", printable(cmp.Or(v.Server, "unknown")))
	return err
}

// serverVersion asks the server for its version.
func (o *versionOptions) serverVersion(ctx context.Context) (string, error) {
	server, err := o.serverURL()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	version, err := restclient.New(restclient.Options{Server: server, Explain: explainUnreachable(server)}).ServerVersion(ctx)
	if err != nil {
		return "", err
	}
	return cmp.Or(version, "older than this client"), nil
}
