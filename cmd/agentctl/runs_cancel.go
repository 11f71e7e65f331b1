// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// runsCancelOptions are the flags of `runs cancel`.
type runsCancelOptions struct {
	restOptions
	output
}

func newRunsCancelCommand() *cobra.Command {
	o := &runsCancelOptions{}
	cmd := &cobra.Command{
		Use:   "cancel RUN...",
		Short: "Cancel queued and running runs",
		Long: `Cancel queued and running runs. Requests that a run has already sent stay sent. A sync
webhook that waits for the run returns that it was cancelled.

The command stops at the first run that cannot be cancelled, such as one that has ended.`,
		Example:           `  agentctl runs cancel 0199f3c2-...`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions, // The other cancel completes deployments.
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := o.newClient()
			if err != nil {
				return err
			}
			return o.cancelRuns(cmd.Context(), api, args, cmd.OutOrStdout())
		},
	}
	o.restOptions.bindFlags(cmd.Flags())
	o.output.bindFlags(cmd.Flags())
	return cmd
}

// cancelRuns cancels runs one after the other. It prints the cancelled runs even if a later one cannot be cancelled.
func (o *runsCancelOptions) cancelRuns(ctx context.Context, api *apiClient, ids []string, out io.Writer) error {
	if err := checkRunIDs(ids...); err != nil {
		return err
	}
	cancelled := make([]restclient.Document[restclient.Run], 0, len(ids))
	var failed error
	for _, id := range ids {
		run, err := api.CancelRun(ctx, id, nil)
		if err != nil {
			failed = fmt.Errorf("cancelling run %s: %w", id, err)
			break
		}
		if cancelled = append(cancelled, run); o.output == outputText {
			fmt.Fprintln(out, "cancelled run "+id)
		}
	}
	if o.output != outputText {
		return errors.Join(failed, o.printValue(out, cancelled))
	}
	return failed
}
