// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// connectorsOptions are the flags of `connectors`.
type connectorsOptions struct {
	restOptions
	output

	environment string

	api *apiClient
}

func newConnectorsCommand() *cobra.Command {
	o := &connectorsOptions{}
	cmd := &cobra.Command{
		Use:   "connectors",
		Short: "List connectors, with the last and the next tick of cron connectors",
		Long: `List the connectors of a project with their environment, type, mode and state. For cron
connectors the list has the last and the next tick, in UTC.`,
		Example: `  agentctl connectors
  agentctl connectors --environment production -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			return o.listConnectors(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.environment, "environment", "", "slug or ID of an environment; default: all that the key can see")
	cmd.AddCommand(newConnectorsTestCommand(), newConnectorsRotateCommand())
	return cmd
}

// connector is a connector with the slug of its environment.
type connector struct {
	restclient.Document[restclient.Connector]
	environment string
}

// enabled returns the text for whether the connector works, or why it does not.
func (c connector) enabled() string {
	switch reason := restclient.ValueOf(c.Value.DisabledReason); {
	case c.Value.Retired:
		return "retired"
	case reason != "":
		return printable(reason)
	case !c.Value.Enabled:
		return "no"
	}
	return "yes"
}

func (o *connectorsOptions) listConnectors(ctx context.Context, out io.Writer) error {
	all, _, err := o.api.connectorCandidates(ctx, o.environment)
	if err != nil {
		return err
	}
	if o.output != outputText {
		return o.printValue(out, all)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENVIRONMENT\tNAME\tTYPE\tMODE\tENABLED\tLAST TICK\tNEXT TICK\tID")
	for _, c := range all {
		fmt.Fprintln(table, strings.Join([]string{
			c.environment, printable(c.Value.Name), string(c.Value.Type), string(c.Value.Mode), c.enabled(),
			formatTick(restclient.PointerTo(c.Value.LastTickAt)), formatTick(restclient.PointerTo(c.Value.NextTickAt)), c.Value.ID,
		}, "\t"))
	}
	return table.Flush()
}

// formatTick formats the time of a tick, "-" for nil.
func formatTick(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// rotateOptions are the flags of `connectors rotate-secret`.
type rotateOptions struct {
	restOptions
	output

	environment string
	grace       time.Duration
	// graceGiven is true if --grace was given, even as 0.
	graceGiven bool

	api           *apiClient
	out, messages io.Writer
}

func newConnectorsRotateCommand() *cobra.Command {
	o := &rotateOptions{}
	cmd := &cobra.Command{
		Use:   "rotate-secret CONNECTOR",
		Short: "Generate a new secret for a connector",
		Long: `Generate a new secret for a connector, and print it once it is in effect. The previous
secrets stay valid for the connector's grace period, a day by default. --grace sets the
period of this rotation only; 0s ends the previous secrets at once.`,
		Example: "  agentctl connectors rotate-secret orders --environment production --grace 48h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			o.out, o.messages, o.graceGiven = cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Flags().Changed("grace")
			return o.rotateSecret(cmd.Context(), args[0])
		},
	}
	o.restOptions.bindFlags(cmd.Flags())
	o.output.bindFlags(cmd.Flags())
	bindLookup(cmd.Flags(), &o.environment)
	cmd.Flags().DurationVar(&o.grace, "grace", 0,
		"how long the previous secrets stay valid after this rotation; default: the grace period of the connector")
	return cmd
}

func (o *rotateOptions) rotateSecret(ctx context.Context, name string) error {
	var body restclient.RotateSecret
	if o.graceGiven {
		if o.grace < 0 || o.grace%time.Second != 0 {
			return errors.New("--grace: must be whole seconds, 0s or more, such as 48h")
		}
		seconds := o.grace / time.Second
		if seconds > math.MaxInt32 {
			return errors.New("--grace: is too long")
		}
		body.GraceSeconds = new(int32(seconds))
	}
	id, err := o.api.findConnector(ctx, "CONNECTOR", o.environment, name)
	if err != nil {
		return err
	}
	rotated, err := o.api.RotateSecret(ctx, id, nil, body)
	if err != nil {
		return fmt.Errorf("rotating the secret of connector %s: %w", printable(name), err)
	}
	if o.output != outputText {
		return o.printValue(o.out, rotated)
	}
	validity := "the previous secrets stay valid for its grace period"
	switch {
	case o.graceGiven && o.grace == 0:
		validity = "the previous secrets have ended"
	case o.graceGiven:
		validity = fmt.Sprintf("the previous secrets stay valid for %s", o.grace)
	}
	fmt.Fprintf(o.messages, "the connector has a new secret; %s\n", validity)
	_, err = fmt.Fprintln(o.out, cmp.Or(restclient.ValueOf(rotated.Value.Secret), restclient.ValueOf(rotated.Value.SigningSecret)))
	return err
}

const (
	// testPoll is how often the state of a test delivery is read.
	testPoll = 2 * time.Second
	// maxExcerpt is how many characters of a destination's response are shown.
	maxExcerpt = 200
)

// testOptions are the flags of `connectors test`.
type testOptions struct {
	restOptions

	environment string

	api *apiClient
}

func newConnectorsTestCommand() *cobra.Command {
	o := &testOptions{}
	cmd := &cobra.Command{
		Use:   "test CONNECTOR",
		Short: "Send a test to the destination of an outbound connector",
		Long: `Send a test to the destination of an outbound connector, and wait for the result.

The destination receives an example with the headers and the signatures of a delivery. Its
header X-Service-Event is test. This needs no agent. The command prints each attempt.

The command fails if the connector cannot be tested, or if the destination does not accept
the first attempt. The platform then retries by the schedule of the connector.`,
		Example: `  agentctl connectors test results --environment production`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			return o.sendTestDelivery(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.bindFlags(cmd.Flags())
	bindLookup(cmd.Flags(), &o.environment)
	return cmd
}

// formatAttempt returns the result of a delivery attempt on one line.
func formatAttempt(a restclient.Attempt) string {
	result := printable(restclient.ValueOf(a.Error))
	if result == "" {
		status := int(restclient.ValueOf(a.StatusCode))
		result = fmt.Sprintf("%d %s", status, http.StatusText(status))
	}
	text := fmt.Sprintf("attempt %d: %s, after %d ms", a.Number, strings.TrimSpace(result), restclient.ValueOf(a.DurationMS))
	if excerpt := []rune(printable(restclient.ValueOf(a.ResponseExcerpt))); len(excerpt) > 0 {
		text += ": " + string(excerpt[:min(len(excerpt), maxExcerpt)])
	}
	return text
}

func (o *testOptions) sendTestDelivery(ctx context.Context, name string, out, messages io.Writer) error {
	connector, err := o.api.findConnector(ctx, "CONNECTOR", o.environment, name)
	if err != nil {
		return err
	}
	test, err := o.api.TestConnector(ctx, connector, nil)
	if err != nil {
		return fmt.Errorf("testing the connector: %w", err)
	}
	id := test.Value.ID
	fmt.Fprintln(out, id)
	for shown, reported := 0, ""; ; {
		d := test.Value
		for _, a := range d.Attempts[min(shown, len(d.Attempts)):] {
			fmt.Fprintln(messages, formatAttempt(a))
			shown++
		}
		problem := restclient.ValueOf(d.Error)
		nextAttempt := restclient.PointerTo(d.NextAttemptAt)
		switch {
		case d.Status == restclient.ConnectorRunStatusCompleted:
			return nil
		case d.Status != restclient.ConnectorRunStatusPending && d.Status != restclient.ConnectorRunStatusRunning:
			return fmt.Errorf("the test ended as %s: %s", d.Status, printable(problem))
		case shown > 0 && nextAttempt != nil:
			return fmt.Errorf("the destination did not accept the test; the next attempt is at %s", nextAttempt.UTC().Format(time.RFC3339))
		case problem != "" && problem != reported:
			reported = problem
			fmt.Fprintln(messages, "waiting:", printable(problem))
		}
		if err := o.api.Wait(ctx, testPoll); err != nil {
			return fmt.Errorf("the test continues as connector run %s: %w", id, err)
		}
		if test, err = o.api.GetConnectorRun(ctx, connector, id); err != nil {
			return fmt.Errorf("reading connector run %s: %w", id, err)
		}
	}
}
