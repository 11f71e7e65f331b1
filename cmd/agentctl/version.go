// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// versionOptions are the flags of `version`.
type versionOptions struct {
	restOptions
	output

	clientOnly bool
}

// versions are those of both sides; Server is "" where it is not known.
type versions struct {
	Client    string `json:"client"`
	GoVersion string `json:"go_version"`
	Platform  string `json:"platform"`
	Server    string `json:"server,omitempty"`
}

// ownVersion is what --version prints.
func ownVersion() string {
	return fmt.Sprintf("%s (%s, %s/%s)", metrics.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersionCommand() *cobra.Command {
	o := &versionOptions{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the server",
		Long: `Print the version of agentctl, and that of the server where --server names one. No API key is
needed. A server that does not answer is no failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.restOptions.bind(cmd.Flags())
	o.output.bind(cmd.Flags())
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "do not ask the server")
	return cmd
}

func (o *versionOptions) run(ctx context.Context, out, messages io.Writer) error {
	v := versions{Client: metrics.Version(), GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !o.clientOnly && o.server != "" {
		var err error
		if v.Server, err = o.serverVersion(ctx); err != nil {
			fmt.Fprintf(messages, "the version of the server is not known: %s\n", printableLines(err.Error()))
		}
	}
	if o.output != outputText {
		return o.write(out, v)
	}
	fmt.Fprintf(out, "client: %s\n", ownVersion())
	_, err := fmt.Fprintf(out, "server: %s\n", printable(cmp.Or(v.Server, "unknown")))
	return err
}

// serverVersion asks the REST API, which says it to anybody with its description.
func (o *versionOptions) serverVersion(ctx context.Context) (string, error) {
	base, err := o.base()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/openapi.json", nil)
	if err != nil {
		return "", fmt.Errorf("making a request: %w", err)
	}
	response, err := newHTTPClient().Do(request)
	if err != nil {
		return "", unreachable(base, err)
	}
	defer response.Body.Close()
	var description struct {
		OpenAPI string `json:"openapi"`
	}
	if json.NewDecoder(io.LimitReader(response.Body, maxRESTAnswer)).Decode(&description) != nil || description.OpenAPI == "" {
		return "", errors.New("this is no answer of the REST API; is --server right?")
	}
	return cmp.Or(response.Header.Get(httpserver.HeaderVersion), "older than this client"), nil
}
