// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

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
