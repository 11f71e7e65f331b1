// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
)

func newRunsDeleteCommand() *cobra.Command {
	o := &restOptions{}
	cmd := &cobra.Command{
		Use:   "delete RUN...",
		Short: "Erase what runs that have ended were about",
		Long: `Erase what runs that have ended were about: output, error and journal, what they have
sent, and with the last run of an event that event's input, attachments and headers.
Nobody finds such a run from then on; statistics go on counting it. There is no way
back.

What a receiver has got, replays of the event and backups of the database are not
touched. The first run that cannot be erased ends the command: one that is open is
to be cancelled before, by agentctl runs cancel.`,
		Example: `  agentctl runs delete 0199f3c2-...`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := o.client()
			if err != nil {
				return err
			}
			return eraseRuns(cmd.Context(), api, args, cmd.OutOrStdout())
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

func eraseRuns(ctx context.Context, api *rest, ids []string, out io.Writer) error {
	if err := areRuns(ids...); err != nil {
		return err
	}
	for _, id := range ids {
		var done struct{}
		if err := api.call(ctx, http.MethodDelete, "/runs/"+id, rand.Text(), nil, &done); err != nil {
			return fmt.Errorf("erasing run %s: %w", id, err)
		}
		fmt.Fprintln(out, "erased run "+id)
	}
	return nil
}
