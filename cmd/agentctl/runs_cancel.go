// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
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
		Short: "End runs that are queued or under way",
		Long: `End runs that are queued or under way. What they have sent stays sent, and a sync webhook
that waits for one is answered that it was cancelled.

The first run that cannot be cancelled ends the command: one that has ended stays as it
is.`,
		Example:           `  agentctl runs cancel 0199f3c2-...`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions, // another cancel is of deployments
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := o.client()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), api, args, cmd.OutOrStdout())
		},
	}
	o.restOptions.bind(cmd.Flags())
	o.output.bind(cmd.Flags())
	return cmd
}

// run cancels runs one after the other; those that were are shown also where the next one cannot be.
func (o *runsCancelOptions) run(ctx context.Context, api *rest, ids []string, out io.Writer) error {
	if err := areRuns(ids...); err != nil {
		return err
	}
	cancelled := make([]json.RawMessage, 0, len(ids))
	var failed error
	for _, id := range ids {
		var run json.RawMessage
		if err := api.call(ctx, http.MethodPost, "/runs/"+id+"/cancel", rand.Text(), nil, &run); err != nil {
			failed = fmt.Errorf("cancelling run %s: %w", id, err)
			break
		}
		if cancelled = append(cancelled, run); o.output == outputText {
			fmt.Fprintln(out, "cancelled run "+id)
		}
	}
	if o.output != outputText {
		return errors.Join(failed, o.write(out, cancelled))
	}
	return failed
}
