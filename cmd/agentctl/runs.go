// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// runsPage is how many runs are asked for at once, mostRuns how many are shown at most.
const (
	runsPage = 100
	mostRuns = 1000
)

// runsOptions are the flags of `runs`.
type runsOptions struct {
	restOptions
	output

	wanted, agent, search string
	statuses              []string
	limit                 int

	now func() time.Time
	api *rest
}

func newRunsCommand() *cobra.Command {
	o := &runsOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "runs [RUN]",
		Short: "List runs of agents, the newest first, or show what one has answered",
		Long: `List runs of agents, the newest first. With the id of one: what it has answered, or why
it failed, and on the standard error output what it has cost; -o json and -o yaml show all
of it.

It ends with 2 when the run that is named has failed or was cancelled.`,
		Example: `  agentctl runs --environment production --agent support --status failed
  agentctl runs --status failed,cancelled
  agentctl runs --search 'input.amount >= 40 && output.contains("refund")'
  agentctl runs 0199f3c2-...`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			if len(args) == 1 {
				return o.one(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if note := asWords(o.search); note != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), note)
			}
			return o.list(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.AddCommand(newRunsCancelCommand(), newRunsDeleteCommand())
	flags := cmd.Flags()
	o.restOptions.bind(flags)
	o.output.bind(flags)
	flags.StringVar(&o.wanted, "environment", "", "slug or id of an environment; without it all that the key may see")
	flags.StringVar(&o.agent, "agent", "", "name of the agent; without it all")
	flags.StringSliceVar(&o.statuses, "status", nil, "only runs with one of these statuses: queued, running, completed, failed, cancelled")
	flags.StringVar(&o.search, "search", "", "only those that this finds: words, or a condition in CEL on input, output, error, status and others")
	flags.IntVar(&o.limit, "limit", 25, "how many, 1 to 1000")
	return cmd
}

// asWords says of a search that looks like a condition, and is none, that it is for its words: one
// with a mistake finds nothing, and says nothing.
func asWords(search string) string {
	if !strings.ContainsAny(search, "=<>&|()") {
		return ""
	}
	_, err := expr.NewCondition(search)
	if !errors.Is(err, expr.ErrNoCondition) {
		return ""
	}
	return fmt.Sprintf("Note: runs are searched for the words of %q: it is %v.", search, err)
}

// agentRun is what is needed of a run.
type agentRun struct {
	ID         string    `json:"id"`
	AgentName  string    `json:"agent_name"`
	TestName   string    `json:"test_name"`
	Status     string    `json:"status"`
	Output     string    `json:"output"`
	Error      string    `json:"error"`
	ErrorCode  string    `json:"error_code"`
	QueuedAt   time.Time `json:"queued_at"`
	DurationMS *int64    `json:"duration_ms"`
	// Cost is nil where none is known.
	Cost *struct {
		Currency string  `json:"currency"`
		Amount   float64 `json:"amount"`
	} `json:"cost"`
	UnpricedCalls int64 `json:"unpriced_calls"`
}

func (o *runsOptions) list(ctx context.Context, out io.Writer) error {
	if o.limit < 1 || o.limit > mostRuns {
		return fmt.Errorf("--limit: must be 1 to %d", mostRuns)
	}
	runs, err := o.pages(ctx)
	if err != nil {
		return err
	}
	if o.output != outputText {
		return o.write(out, runs)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tAGENT\tAGE\tDURATION\tSTATUS")
	for _, text := range runs {
		var r agentRun
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("reading a run: %w", err)
		}
		duration, status := "-", paint(out, r.Status)
		if r.DurationMS != nil {
			duration = (time.Duration(*r.DurationMS) * time.Millisecond).String()
		}
		if r.ErrorCode != "" {
			status += " (" + printable(r.ErrorCode) + ")"
		}
		agent := printable(r.AgentName)
		if r.TestName != "" {
			agent += " (" + printable(r.TestName) + ")"
		}
		fmt.Fprintln(table, strings.Join([]string{r.ID, agent, age(o.now(), &r.QueuedAt), duration, status}, "\t"))
	}
	return table.Flush()
}

// pages are as many runs as are asked for.
func (o *runsOptions) pages(ctx context.Context) (runs []json.RawMessage, err error) {
	query := url.Values{}
	if o.wanted != "" {
		e, err := o.api.environment(ctx, o.wanted)
		if err != nil {
			return nil, err
		}
		query.Set("environment_id", e.ID)
	}
	for _, status := range o.statuses {
		query.Add("status_filter", status)
	}
	for name, value := range map[string]string{"agent_name": o.agent, "search": o.search} {
		if value != "" {
			query.Set(name, value)
		}
	}
	runs = []json.RawMessage{}
	for len(runs) < o.limit {
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"next_cursor"`
		}
		query.Set("limit", strconv.Itoa(min(o.limit-len(runs), runsPage)))
		if err := o.api.call(ctx, http.MethodGet, "/runs?"+query.Encode(), "", nil, &page); err != nil {
			return nil, fmt.Errorf("listing runs: %w", err)
		}
		if runs = append(runs, page.Items...); page.NextCursor == "" {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	return runs, nil
}

// areRuns says which of the arguments is none.
func areRuns(ids ...string) error {
	for _, id := range ids {
		if _, err := uuid.Parse(id); err != nil {
			return errors.New("RUN: must be the id of a run")
		}
	}
	return nil
}

// tellCost says what a run has cost where that is known, beside its answer.
func (r *agentRun) tellCost(out io.Writer) {
	if r.Cost == nil {
		return
	}
	beside := ""
	if r.UnpricedCalls > 0 {
		beside = fmt.Sprintf(", and %d calls of models without a price", r.UnpricedCalls)
	}
	fmt.Fprintf(out, "the run has cost %s %s%s\n", strconv.FormatFloat(r.Cost.Amount, 'f', -1, 64), printable(r.Cost.Currency), beside)
}

func (o *runsOptions) one(ctx context.Context, id string, out, beside io.Writer) error {
	if err := areRuns(id); err != nil {
		return err
	}
	var text json.RawMessage
	if err := o.api.call(ctx, http.MethodGet, "/runs/"+id, "", nil, &text); err != nil {
		return fmt.Errorf("reading run %s: %w", id, err)
	}
	var r agentRun
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("reading run %s: %w", id, err)
	}
	if o.output != outputText {
		if err := o.write(out, text); err != nil {
			return err
		}
	} else {
		if r.Output != "" {
			fmt.Fprintln(out, printableLines(r.Output))
		}
		r.tellCost(beside)
	}
	switch r.Status {
	case "failed", "cancelled":
		return &outcomeError{strings.TrimSpace(fmt.Sprintf("the run is %s %s: %s", r.Status, printable(r.ErrorCode), printableLines(r.Error)))}
	case "completed":
		return nil
	}
	if o.output == outputText {
		fmt.Fprintln(out, "the run is "+paint(out, r.Status))
	}
	return nil
}
