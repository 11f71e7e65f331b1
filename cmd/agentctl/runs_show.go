// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

func newRunsShowCommand() *cobra.Command {
	return newTraceCommand(&cobra.Command{
		Use:   "show RUN",
		Short: "Show the steps and the log of a run",
		Long: `Show the steps of a run as a tree, with their times, tokens, costs and errors, and then its log.
An open run shows its steps so far.`,
		Example: `  agentctl runs show 0199f3c2-...`,
	}, func(out io.Writer, run restclient.Document[restclient.Run]) error {
		if err := printSpans(out, run.Value); err != nil {
			return err
		}
		if len(run.Value.Logs) > 0 || run.Value.MoreLogs > 0 {
			fmt.Fprintln(out)
		}
		return printLog(out, run)
	})
}

func newRunsLogsCommand() *cobra.Command {
	return newTraceCommand(&cobra.Command{
		Use:     "logs RUN",
		Short:   "Show the log of a run",
		Long:    `Show the lines that the scripts of a run logged, and the errors of scripts, with their positions.`,
		Example: `  agentctl runs logs 0199f3c2-...`,
	}, printLog)
}

// newTraceCommand completes a command that prints a run.
func newTraceCommand(cmd *cobra.Command, show func(out io.Writer, run restclient.Document[restclient.Run]) error) *cobra.Command {
	o := &runsOptions{}
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.api, err = o.newClient(); err != nil {
			return err
		}
		return o.showRun(cmd.Context(), args[0], cmd.OutOrStdout(), show)
	}
	o.restOptions.bindFlags(cmd.Flags())
	o.output.bindFlags(cmd.Flags())
	return cmd
}

func (o *runsOptions) showRun(
	ctx context.Context, id string, out io.Writer, show func(out io.Writer, run restclient.Document[restclient.Run]) error,
) error {
	if err := checkRunIDs(id); err != nil {
		return err
	}
	run, err := o.api.GetRun(ctx, id)
	if err != nil {
		return fmt.Errorf("reading run %s: %w", id, err)
	}
	if o.output != outputText {
		return o.printValue(out, run)
	}
	return show(out, run)
}

// printSpans writes the tree of steps. Each step follows the step that it is a part of.
func printSpans(out io.Writer, r restclient.Run) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STEP\tTIME\tTOKENS\tCOST\tERROR")
	depths := map[string]int{}
	for _, s := range r.Traces {
		depth := 0
		if parent := restclient.ValueOf(s.ParentID); parent != "" {
			depth = depths[parent] + 1
		}
		depths[s.ID] = depth
		duration, tokens, cost, failure := "running", "-", "-", ""
		if ms := restclient.PointerTo(s.DurationMS); ms != nil {
			duration = (time.Duration(*ms) * time.Millisecond).String()
		}
		if usage := restclient.PointerTo(s.TokenUsage); usage != nil {
			tokens = strconv.FormatInt(usage.TotalTokens, 10)
		}
		if amount := restclient.PointerTo(s.Cost); amount != nil {
			cost = strconv.FormatFloat(amount.Amount, 'f', -1, 64) + " " + printable(string(amount.Currency))
		}
		if code := restclient.ValueOf(s.ErrorType); code != "" {
			failure = printable(code) + ": " + printable(restclient.ValueOf(s.Error))
		}
		fmt.Fprintln(table, strings.Repeat("  ", depth)+strings.Join([]string{printable(s.Name), duration, tokens, cost, failure}, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if r.MoreTraces > 0 {
		fmt.Fprintf(out, "%d more steps\n", r.MoreTraces)
	}
	return nil
}

// printLog writes the log lines of a run. The fields keep the digits of numbers.
func printLog(out io.Writer, run restclient.Document[restclient.Run]) error {
	var fields struct {
		Logs []struct {
			Fields json.RawMessage `json:"fields"`
		} `json:"logs"`
	}
	if err := json.Unmarshal(run.Text, &fields); err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	for i, l := range run.Value.Logs {
		words := []string{l.At.UTC().Format("15:04:05.000"), string(l.Level)}
		if position := restclient.ValueOf(l.Position); position != "" {
			words = append(words, printable(position))
		}
		words = append(words, printableLines(l.Message))
		if f := fields.Logs[i].Fields; len(f) > 0 && !bytes.Equal(f, []byte("null")) {
			words = append(words, jsonLine(f))
		}
		fmt.Fprintln(out, strings.Join(words, " "))
	}
	if run.Value.MoreLogs > 0 {
		fmt.Fprintf(out, "%d more lines\n", run.Value.MoreLogs)
	}
	return nil
}
