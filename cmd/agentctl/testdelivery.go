// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// testPoll is how often it is asked what has come of a test.
	testPoll = 2 * time.Second
	// maxShownAnswer is how many characters of a destination's answer are shown.
	maxShownAnswer = 200
)

// testOptions are the flags of `connectors test`.
type testOptions struct {
	restOptions

	environment string

	api *rest
}

func newConnectorsTestCommand() *cobra.Command {
	o := &testOptions{}
	cmd := &cobra.Command{
		Use:   "test CONNECTOR",
		Short: "Send a test to the destination of an outbound connector",
		Long: `Send a test to the destination of an outbound connector, and wait for what comes of
it.

The destination gets an example with the headers and the signatures of every
delivery; its header X-Service-Event is test. No agent is needed. Each attempt is
printed as it has been made.

The command fails where the connector cannot be tested, and where the destination
does not take the first attempt. The platform tries again then, by the connector's
schedule.`,
		Example: `  agentctl connectors test results --environment production`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.bind(cmd.Flags())
	bindWithin(cmd.Flags(), &o.environment)
	return cmd
}

// triedDelivery is what the API says of a delivery.
type triedDelivery struct {
	ID            string         `json:"id"`
	Status        string         `json:"status"`
	Error         string         `json:"error"`
	Attempts      []triedAttempt `json:"attempts"`
	NextAttemptAt *time.Time     `json:"next_attempt_at"`
}

type triedAttempt struct {
	Number          int    `json:"number"`
	StatusCode      int    `json:"status_code"`
	DurationMS      int64  `json:"duration_ms"`
	Error           string `json:"error"`
	ResponseExcerpt string `json:"response_excerpt"`
}

// String says what came of it.
func (a triedAttempt) String() string {
	what := printable(a.Error)
	if what == "" {
		what = fmt.Sprintf("%d %s", a.StatusCode, http.StatusText(a.StatusCode))
	}
	text := fmt.Sprintf("attempt %d: %s, after %d ms", a.Number, strings.TrimSpace(what), a.DurationMS)
	if answer := []rune(printable(a.ResponseExcerpt)); len(answer) > 0 {
		text += ": " + string(answer[:min(len(answer), maxShownAnswer)])
	}
	return text
}

func (o *testOptions) run(ctx context.Context, connector string, out, messages io.Writer) error {
	connector, err := o.api.connectorID(ctx, "CONNECTOR", o.environment, connector)
	if err != nil {
		return err
	}
	path := "/connectors/" + connector
	var d triedDelivery
	if err := o.api.call(ctx, http.MethodPost, path+"/test", "agentctl-"+strings.ToLower(rand.Text()), nil, &d); err != nil {
		return fmt.Errorf("testing the connector: %w", err)
	}
	fmt.Fprintln(out, d.ID)
	for shown, waits := 0, ""; ; {
		for _, a := range d.Attempts[min(shown, len(d.Attempts)):] {
			fmt.Fprintln(messages, a)
			shown++
		}
		switch {
		case d.Status == "completed":
			return nil
		case d.Status != "pending" && d.Status != "running":
			return fmt.Errorf("the test has ended %s: %s", d.Status, printable(d.Error))
		case shown > 0 && d.NextAttemptAt != nil:
			return fmt.Errorf("the destination has not taken the test; it is tried again at %s", d.NextAttemptAt.UTC().Format(time.RFC3339))
		case d.Error != "" && d.Error != waits:
			waits = d.Error
			fmt.Fprintln(messages, "waiting:", printable(waits))
		}
		if err := o.api.wait(ctx, testPoll); err != nil {
			return fmt.Errorf("the test goes on as connector run %s: %w", d.ID, err)
		}
		next := triedDelivery{}
		if err := o.api.call(ctx, http.MethodGet, path+"/runs/"+d.ID, "", nil, &next); err != nil {
			return fmt.Errorf("reading connector run %s: %w", d.ID, err)
		}
		d = next
	}
}
