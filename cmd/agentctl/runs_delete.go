// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newRunsDeleteCommand() *cobra.Command {
	o := &restOptions{}
	cmd := &cobra.Command{
		Use:   "delete RUN...",
		Short: "Erase the content of ended runs",
		Long: `Erase the content of ended runs: output, error, journal and deliveries. With the last run of
an event the input, attachments and headers of that event are erased too. Searches no longer
find an erased run; statistics still count it. This cannot be undone.

It does not affect receivers of results, replays of the event and backups of the database.
The command stops at the first run that cannot be erased. Cancel an open run first, by
agentctl runs cancel.`,
		Example: `  agentctl runs delete 0199f3c2-...`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := o.newClient()
			if err != nil {
				return err
			}
			return eraseRuns(cmd.Context(), api, args, cmd.OutOrStdout())
		},
	}
	o.bindFlags(cmd.Flags())
	return cmd
}

func eraseRuns(ctx context.Context, api *apiClient, ids []string, out io.Writer) error {
	if err := checkRunIDs(ids...); err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := api.EraseRun(ctx, id, nil); err != nil {
			return fmt.Errorf("erasing run %s: %w", id, err)
		}
		fmt.Fprintln(out, "erased run "+id)
	}
	return nil
}
