// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
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

// runView is a command that prints a run, or follows it.
type runView struct {
	// print writes the run as it is.
	print func(out io.Writer, run restclient.Document[restclient.Run]) error
	// showsSteps is true if the command prints the steps and not only the log.
	showsSteps bool
}

func newRunsShowCommand() *cobra.Command {
	return newTraceCommand(&cobra.Command{
		Use:   "show RUN",
		Short: "Show the steps and the log of a run",
		Long: `Show the steps of a run as a tree, with their times, tokens, costs and errors, and then its log.
An open run shows its steps so far. With -f the command prints each step and each line as it
happens, until the run has ended.`,
		Example: `  agentctl runs show 0199f3c2-...
  agentctl runs show -f 0199f3c2-...`,
	}, runView{print: printTrace, showsSteps: true})
}

func newRunsLogsCommand() *cobra.Command {
	return newTraceCommand(&cobra.Command{
		Use:   "logs RUN",
		Short: "Show the log of a run",
		Long: `Show the lines that the scripts of a run logged, and the errors of scripts, with their positions.
With -f the command prints each line as it happens, until the run has ended.`,
		Example: `  agentctl runs logs 0199f3c2-...
  agentctl runs logs -f 0199f3c2-...`,
	}, runView{print: printLog})
}

// newTraceCommand completes a command that prints a run.
func newTraceCommand(cmd *cobra.Command, view runView) *cobra.Command {
	o := &runsOptions{}
	follow := false
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.api, err = o.newClient(); err != nil {
			return err
		}
		if follow {
			return o.followRun(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr(), view.showsSteps)
		}
		return o.showRun(cmd.Context(), args[0], cmd.OutOrStdout(), view.print)
	}
	setOutcome(cmd, "the run that -f followed failed or was cancelled")
	o.restOptions.bindFlags(cmd.Flags())
	o.output.bindFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow the run until it has ended; -o json prints one event per line")
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

// printTrace writes the steps and the log of a run.
func printTrace(out io.Writer, run restclient.Document[restclient.Run]) error {
	if err := printSpans(out, run.Value); err != nil {
		return err
	}
	if len(run.Value.Logs) > 0 || run.Value.MoreLogs > 0 {
		fmt.Fprintln(out)
	}
	return printLog(out, run)
}

// printSpans writes the tree of steps. Each step follows the step that it is a part of.
func printSpans(out io.Writer, r restclient.Run) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STEP\tTIME\tTOKENS\tCOST\tERROR")
	depths := spanDepths{}
	for i := range r.Traces {
		c := spanCells(&r.Traces[i], depths.indent(&r.Traces[i]))
		fmt.Fprintln(table, strings.Join([]string{c.name, c.duration, cmp.Or(c.tokens, "-"), cmp.Or(c.cost, "-"), c.failure}, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	printOmitted(out, r.MoreTraces, "steps")
	return nil
}

// printOmitted writes how many steps or lines the platform left out, if there are any.
func printOmitted(out io.Writer, count int64, of string) {
	if count > 0 {
		fmt.Fprintf(out, "%d more %s\n", count, of)
	}
}

// spanDepths are the depths of steps in the tree, by the IDs of the steps.
type spanDepths map[string]int

// indent returns the indentation of a step. A step whose parent is unknown is a part of the run.
func (d spanDepths) indent(s *restclient.Span) string {
	depth := 0
	if parent := restclient.ValueOf(s.ParentID); parent != "" {
		depth = d[parent] + 1
	}
	d[s.ID] = depth
	return strings.Repeat("  ", depth)
}

// stepCells are the printable columns of a step.
type stepCells struct{ name, duration, tokens, cost, failure string }

// spanCells returns the columns of a step. The ones that it does not have are empty.
func spanCells(s *restclient.Span, indent string) stepCells {
	c := stepCells{name: indent + printable(s.Name), duration: "running"}
	if ms := restclient.PointerTo(s.DurationMS); ms != nil {
		c.duration = (time.Duration(*ms) * time.Millisecond).String()
	}
	if usage := restclient.PointerTo(s.TokenUsage); usage != nil {
		c.tokens = strconv.FormatInt(usage.TotalTokens, 10)
	}
	if amount := restclient.PointerTo(s.Cost); amount != nil {
		c.cost = strconv.FormatFloat(amount.Amount, 'f', -1, 64) + " " + printable(string(amount.Currency))
	}
	if code := restclient.ValueOf(s.ErrorType); code != "" {
		c.failure = printable(code) + ": " + printable(restclient.ValueOf(s.Error))
	}
	return c
}

// printLog writes the log of a run.
func printLog(out io.Writer, run restclient.Document[restclient.Run]) error {
	var read struct {
		Logs []logLine `json:"logs"`
	}
	if err := json.Unmarshal(run.Text, &read); err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	for i := range read.Logs {
		fmt.Fprintln(out, read.Logs[i].format())
	}
	printOmitted(out, run.Value.MoreLogs, "lines")
	return nil
}

// logLine is a log line whose fields keep the digits of numbers.
type logLine struct {
	restclient.LogLine
	Fields json.RawMessage `json:"fields"`
}

// format returns the line for people.
func (l *logLine) format() string {
	words := []string{formatMoment(l.At), string(l.Level)}
	if position := restclient.ValueOf(l.Position); position != "" {
		words = append(words, printable(position))
	}
	words = append(words, printableLines(l.Message))
	if len(l.Fields) > 0 && !bytes.Equal(l.Fields, []byte("null")) {
		words = append(words, jsonLine(l.Fields))
	}
	return strings.Join(words, " ")
}

// formatMoment returns the time of day with milliseconds.
func formatMoment(at time.Time) string { return at.UTC().Format("15:04:05.000") }
