// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

const (
	// listenPoll is how often new deliveries are listed.
	listenPoll = 5 * time.Second
	// listenPages is how many pages are read at most to find the deliveries since the last poll.
	listenPages = 10
)

// envSigning is the environment variable with a signing secret.
var envSigning = flagenv.Name("signing-secret")

// listenOptions are the flags of `listen`.
type listenOptions struct {
	restOptions

	connector, environment, forward, secretFile string
	json                                        bool

	getenv func(string) string
	now    func() time.Time
	api    *apiClient
	to     *forwarder // nil without --forward
}

func newListenCommand() *cobra.Command {
	o := &listenOptions{getenv: os.Getenv, now: time.Now}
	cmd := &cobra.Command{
		Use:   "listen --connector CONNECTOR [--forward URL]",
		Short: "Show deliveries of an outbound connector, and forward them to a local port",
		Long: `Show deliveries of an outbound connector while they are made, until you stop the command.
The deliveries still go to the destination of the connector.

The command prints a line for each delivery that begins after the command, and for each
change of its status. It lists the deliveries every five seconds, and sees changes among the
newest hundred.

With --forward the command also sends each delivery once to a URL of this machine, with the
body and the headers of the delivery. It leaves out headers that the connector adds, because
their values are credentials. It signs the request with the signing secret of the connector,
from --secret-file, the environment variable ` + envSigning + `,
or else from the REST API. It does not forward skipped deliveries. If it cannot forward a
delivery, the line says why.`,
		Example: `  agentctl listen --connector results
  agentctl listen --connector results --forward http://127.0.0.1:3000/hook`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			return o.listenForDeliveries(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bindFlags(flags)
	flags.StringVar(&o.connector, "connector", "", "name or ID of an outbound connector")
	bindLookup(flags, &o.environment)
	flags.StringVar(&o.forward, "forward", "", "URL of this machine that receives the deliveries, such as http://127.0.0.1:3000/hook")
	flags.StringVar(&o.secretFile, "secret-file", "", "file with the secret that signs forwarded deliveries")
	flags.BoolVar(&o.json, "json", false, "write each line as JSON")
	return cmd
}

func (o *listenOptions) listenForDeliveries(ctx context.Context, out, messages io.Writer) error {
	if err := o.prepare(ctx); err != nil {
		return err
	}
	known, _, err := o.listDeliveries(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(messages, "listening; stop with Ctrl-C")
	for {
		if o.api.Wait(ctx, listenPoll) != nil {
			return nil
		}
		current, missed, err := o.listDeliveries(ctx, known)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case missed:
			fmt.Fprintf(messages, "more than %d deliveries have begun since the last poll: some are left out\n", restclient.MaxPage*listenPages)
		}
		if err := o.printChanges(ctx, current, known, out); err != nil {
			return err
		}
		known = current
	}
}

// prepare reads the connector, and checks where deliveries are forwarded to.
func (o *listenOptions) prepare(ctx context.Context) error {
	id, err := o.api.findConnector(ctx, "--connector", o.environment, o.connector)
	if err != nil {
		return err
	}
	o.connector = id
	conn, err := o.api.GetConnector(ctx, id)
	if err != nil {
		return fmt.Errorf("reading the connector: %w", err)
	}
	if conn.Value.Mode != restclient.ConnectorModeOutbound {
		return fmt.Errorf("the connector makes no deliveries: its mode is %s", conn.Value.Mode)
	}
	if o.forward == "" {
		return nil
	}
	to, err := url.Parse(o.forward)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || !isLoopback(to.Hostname()) {
		return errors.New("--forward: must be a URL of this machine, such as http://127.0.0.1:3000/hook")
	}
	secret := o.getenv(envSigning)
	if o.secretFile != "" {
		text, err := os.ReadFile(o.secretFile)
		if err != nil {
			return fmt.Errorf("reading the secret: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	if shown := restclient.ValueOf(conn.Value.SigningSecret); secret == "" && shown != masked {
		secret = shown
	}
	if secret == "" {
		return errors.New("the REST API does not show the signing secret to this key: give it by --secret-file, or by " + envSigning)
	}
	o.to = newForwarder(to.String(), secret, o.now)
	return nil
}

// deliveryList is the result of a poll, newest first.
type deliveryList struct {
	deliveries []restclient.ConnectorRun
	// floor is the ID of the oldest delivery of the poll if there are older ones, else "".
	floor string
}

// statusOf returns the status of a delivery, "" if the list does not have it.
func (l *deliveryList) statusOf(id string) restclient.ConnectorRunStatus {
	i := slices.IndexFunc(l.deliveries, func(d restclient.ConnectorRun) bool { return d.ID == id })
	if i < 0 {
		return ""
	}
	return l.deliveries[i].Status
}

// listDeliveries lists the newest deliveries, back to the deliveries of the previous poll. missed reports that it did not get that far.
func (o *listenOptions) listDeliveries(ctx context.Context, previous *deliveryList) (current *deliveryList, missed bool, err error) {
	current = &deliveryList{}
	params := &restclient.ListConnectorRunsParams{
		TimeRange: new(restclient.TimeRangeN1H), TriggerType: new(restclient.TriggerTypeOutbound), Limit: new(int64(restclient.MaxPage)),
	}
	for n := range listenPages {
		params.Offset = new(int64(n * restclient.MaxPage))
		page, err := o.api.ListConnectorRuns(ctx, o.connector, params)
		if err != nil {
			return nil, false, fmt.Errorf("listing deliveries: %w", err)
		}
		items := page.Value.Items
		for _, d := range items {
			if current.statusOf(d.ID) == "" { // A new delivery moves the others to later pages.
				current.deliveries = append(current.deliveries, d)
			}
		}
		current.floor = ""
		if len(items) < restclient.MaxPage {
			return current, false, nil
		}
		oldest := items[restclient.MaxPage-1].ID
		current.floor = oldest
		if previous == nil || oldest <= previous.floor || previous.statusOf(oldest) != "" {
			return current, false, nil
		}
	}
	return current, true, nil
}

// printChanges writes a line for each delivery that is new or has another status.
func (o *listenOptions) printChanges(ctx context.Context, current, previous *deliveryList, out io.Writer) error {
	for _, d := range slices.Backward(current.deliveries) {
		before := previous.statusOf(d.ID)
		if before == d.Status || before == "" && d.ID < previous.floor {
			continue
		}
		var result *forwardResult
		if before == "" && o.to != nil && d.Status != restclient.ConnectorRunStatusSkipped {
			result = o.to.forward(ctx, o.api, o.connector, d)
		}
		if err := o.printDelivery(out, d, result); err != nil {
			return err
		}
	}
	return nil
}

// deliveryLine is the line of a delivery as JSON.
type deliveryLine struct {
	ID        string                        `json:"id"`
	RunID     string                        `json:"run_id"`
	Status    restclient.ConnectorRunStatus `json:"status"`
	StartedAt time.Time                     `json:"started_at"`
	Error     string                        `json:"error,omitempty"`
	Forwarded *forwardResult                `json:"forwarded,omitempty"`
}

// printDelivery writes the line of a delivery.
func (o *listenOptions) printDelivery(out io.Writer, d restclient.ConnectorRun, result *forwardResult) error {
	run, problem := restclient.ValueOf(d.RunID), restclient.ValueOf(d.Error)
	if o.json {
		text, err := json.Marshal(deliveryLine{d.ID, run, d.Status, d.StartedAt, problem, result})
		if err != nil {
			return fmt.Errorf("writing a delivery: %w", err)
		}
		_, err = fmt.Fprintln(out, jsonLine(text))
		return err
	}
	of := "run " + run
	if run == "" { // A test has no run.
		of = printable(string(restclient.ValueOf(d.Kind)))
	}
	line := fmt.Sprintf("%s  %s  %-9s  %s", o.now().Format(time.TimeOnly), d.ID, d.Status, of)
	if problem != "" {
		line += "  " + printable(problem)
	}
	if result != nil {
		line += "  -> " + cmp.Or(printable(result.Error), strconv.Itoa(result.Status))
	}
	_, err := fmt.Fprintln(out, line)
	return err
}
