// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// maxRuns is how many runs the command lists at most.
const maxRuns = 1000

// runsOptions are the flags of `runs`.
type runsOptions struct {
	restOptions
	output

	environment, agent, search string
	statuses                   []string
	limit                      int

	now func() time.Time
	api *apiClient
}

func newRunsCommand() *cobra.Command {
	o := &runsOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "runs [RUN]",
		Short: "List the runs of agents, or show the output of one",
		Long: `List the runs of agents, newest first. With the ID of a run the command prints the output of
the run, or why it failed, and writes its cost to standard error. -o json and -o yaml show
the whole run.`,
		Example: `  agentctl runs --environment production --agent support --status failed
  agentctl runs --status failed,cancelled
  agentctl runs --search 'input.amount >= 40 && output.contains("refund")'
  agentctl runs 0199f3c2-...`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			if len(args) == 1 {
				return o.printRun(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if note := wordSearchNote(o.search); note != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), note)
			}
			return o.listRuns(cmd.Context(), cmd.OutOrStdout())
		},
	}
	setOutcome(cmd, "the run that RUN names failed or was cancelled")
	cmd.AddCommand(newRunsShowCommand(), newRunsLogsCommand(), newRunsCancelCommand(), newRunsDeleteCommand())
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.environment, "environment", "", "slug or ID of an environment; default: all that the key can see")
	flags.StringVar(&o.agent, "agent", "", "name of the agent; default: all agents")
	flags.StringSliceVar(&o.statuses, "status", nil, "only runs with one of these statuses: queued, running, completed, failed, cancelled")
	flags.StringVar(&o.search, "search", "", "only runs that match: words, or a CEL condition on input, output, error, status and other fields")
	flags.IntVar(&o.limit, "limit", 25, "maximum number of runs, 1 to 1000")
	return cmd
}

// wordSearchNote warns about a search that looks like a condition but is none. A condition with a mistake is searched for its
// words, and then usually finds nothing.
func wordSearchNote(search string) string {
	if !strings.ContainsAny(search, "=<>&|()") {
		return ""
	}
	_, err := expr.NewCondition(search)
	if !errors.Is(err, expr.ErrNoCondition) {
		return ""
	}
	return fmt.Sprintf("Note: runs are searched for the words of %q: it is %v.", search, err)
}

func (o *runsOptions) listRuns(ctx context.Context, out io.Writer) error {
	if o.limit < 1 || o.limit > maxRuns {
		return fmt.Errorf("--limit: must be 1 to %d", maxRuns)
	}
	params, err := o.listParams(ctx)
	if err != nil {
		return err
	}
	runs := []restclient.Document[restclient.Run]{}
	for run, err := range o.api.Runs(ctx, params, o.limit) {
		if err != nil {
			return fmt.Errorf("listing runs: %w", err)
		}
		runs = append(runs, run)
	}
	if o.output != outputText {
		return o.printValue(out, runs)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tAGENT\tAGE\tDURATION\tSTATUS")
	for _, run := range runs {
		r := run.Value
		duration, status := "-", paintStatus(out, string(r.Status))
		if ms := restclient.PointerTo(r.DurationMS); ms != nil {
			duration = (time.Duration(*ms) * time.Millisecond).String()
		}
		if code := restclient.ValueOf(r.ErrorCode); code != "" {
			status += " (" + printable(code) + ")"
		}
		agent := printable(r.AgentName)
		if test := restclient.ValueOf(r.TestName); test != "" {
			agent += " (" + printable(test) + ")"
		}
		fmt.Fprintln(table, strings.Join([]string{r.ID, agent, formatAge(o.now(), &r.QueuedAt), duration, status}, "\t"))
	}
	return table.Flush()
}

// listParams returns the filters of the flags.
func (o *runsOptions) listParams(ctx context.Context) (params restclient.ListRunsParams, err error) {
	if o.environment != "" {
		e, err := o.api.findEnvironment(ctx, "--environment", o.environment)
		if err != nil {
			return params, err
		}
		params.EnvironmentID = &e.ID
	}
	if len(o.statuses) > 0 {
		statuses := make([]restclient.RunStatusFilter, len(o.statuses))
		for i, status := range o.statuses {
			statuses[i] = restclient.RunStatusFilter(status)
		}
		params.StatusFilter = &statuses
	}
	if o.agent != "" {
		params.AgentName = &o.agent
	}
	if o.search != "" {
		params.Search = &o.search
	}
	return params, nil
}

// checkRunIDs returns an error if an argument is not the ID of a run.
func checkRunIDs(ids ...string) error {
	for _, id := range ids {
		if _, err := uuid.Parse(id); err != nil {
			return errors.New("RUN: must be the ID of a run")
		}
	}
	return nil
}

// printCost writes the cost of a run, if it is known.
func printCost(r restclient.Run, out io.Writer) {
	cost, err := r.Cost.Get()
	if err != nil {
		return
	}
	unpriced := ""
	if calls := restclient.ValueOf(r.UnpricedCalls); calls > 0 {
		unpriced = fmt.Sprintf(", without %d calls of models that have no price", calls)
	}
	fmt.Fprintf(out, "cost of the run: %s %s%s\n", strconv.FormatFloat(cost.Amount, 'f', -1, 64), printable(string(cost.Currency)), unpriced)
}

func (o *runsOptions) printRun(ctx context.Context, id string, out, messages io.Writer) error {
	if err := checkRunIDs(id); err != nil {
		return err
	}
	run, err := o.api.GetRun(ctx, id)
	if err != nil {
		return fmt.Errorf("reading run %s: %w", id, err)
	}
	r := run.Value
	if o.output != outputText {
		if err := o.printValue(out, run); err != nil {
			return err
		}
	} else {
		if text := restclient.ValueOf(r.Output); text != "" {
			fmt.Fprintln(out, printableLines(text))
		}
		if note := describeFinish(restclient.ValueOf(r.FinishReason)); note != "" {
			fmt.Fprintln(messages, "the last model answer is "+note)
		}
		printCost(r, messages)
	}
	if err := runOutcome(r); err != nil || r.Status == restclient.RunStatusCompleted {
		return err
	}
	if o.output == outputText {
		fmt.Fprintln(out, "the run is "+paintStatus(out, string(r.Status)))
	}
	return nil
}

// runOutcome returns an error if a run failed or was cancelled.
func runOutcome(r restclient.Run) error {
	if r.Status != restclient.RunStatusFailed && r.Status != restclient.RunStatusCancelled {
		return nil
	}
	code, text := restclient.ValueOf(r.ErrorCode), restclient.ValueOf(r.Error)
	return &outcomeError{strings.TrimSpace(fmt.Sprintf("the run is %s %s: %s", r.Status, printable(code), printableLines(text)))}
}

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
