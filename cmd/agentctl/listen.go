// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
)

const (
	// listenPoll is how often it is asked for new deliveries.
	listenPoll = 5 * time.Second
	// listenPage is how many deliveries a call lists, listenPages how many calls are made for
	// those that have come since the last time.
	listenPage  = 100
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
	api    *rest
	to     *forwarder // nil without --forward
}

func newListenCommand() *cobra.Command {
	o := &listenOptions{getenv: os.Getenv, now: time.Now}
	cmd := &cobra.Command{
		Use:   "listen --connector CONNECTOR [--forward URL]",
		Short: "Show deliveries of an outbound connector, and forward them to a local port",
		Long: `Show deliveries of an outbound connector as they are made, and forward them to a
local port, until it is stopped.

There is a line for each delivery that begins after the command, and one for each
change of status that is seen, every five seconds, among the newest hundred. The deliveries go to the connector's destination all the
same.

With --forward each is sent once to a URL of this machine too, with the body and the headers
of a delivery, but for headers that the connector adds: their values are
credentials. It is signed with the connector's signing secret, which
--secret-file or the environment, ` + envSigning + `,
may give, else the REST API. Skipped ones are not forwarded. Where what a delivery carries cannot
be had, or the local port does not answer, the line says so.`,
		Example: `  agentctl listen --connector results
  agentctl listen --connector results --forward http://127.0.0.1:3000/hook`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVar(&o.connector, "connector", "", "name or id of an outbound connector")
	bindWithin(flags, &o.environment)
	flags.StringVar(&o.forward, "forward", "", "URL of this machine that deliveries are sent to, such as http://127.0.0.1:3000/hook")
	flags.StringVar(&o.secretFile, "secret-file", "", "file with the secret that forwarded deliveries are signed with")
	flags.BoolVar(&o.json, "json", false, "write each line as JSON")
	return cmd
}

// heard is what a list of the API says of a delivery.
type heard struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	StartedAt time.Time `json:"started_at"`
	RunID     string    `json:"run_id"`
	Error     string    `json:"error"`
	Kind      string    `json:"kind"`
	// Hops is 0 where the API does not say.
	Hops int `json:"hops"`
}

func (o *listenOptions) run(ctx context.Context, out, messages io.Writer) error {
	if err := o.prepare(ctx); err != nil {
		return err
	}
	known, _, err := o.look(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(messages, "listening; stop with Ctrl-C")
	for {
		if o.api.wait(ctx, listenPoll) != nil {
			return nil
		}
		news, missed, err := o.look(ctx, known)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case missed:
			fmt.Fprintf(messages, "more than %d deliveries have begun since the last look: some are left out\n", listenPage*listenPages)
		}
		if err := o.tell(ctx, news, known, out); err != nil {
			return err
		}
		known = news
	}
}

// prepare reads the connector, and where deliveries are forwarded to.
func (o *listenOptions) prepare(ctx context.Context) error {
	id, err := o.api.connectorID(ctx, "--connector", o.environment, o.connector)
	if err != nil {
		return err
	}
	o.connector = id
	var conn struct {
		Mode          string `json:"mode"`
		SigningSecret string `json:"signing_secret"`
	}
	if err := o.api.call(ctx, http.MethodGet, "/connectors/"+o.connector, "", nil, &conn); err != nil {
		return fmt.Errorf("reading the connector: %w", err)
	}
	if conn.Mode != "outbound" {
		return fmt.Errorf("the connector makes no deliveries: its mode is %s", conn.Mode)
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
	if secret == "" && conn.SigningSecret != "********" {
		secret = conn.SigningSecret
	}
	if secret == "" {
		return errors.New("the REST API does not show the signing secret: give it by --secret-file, or by " + envSigning)
	}
	o.to = newForwarder(to.String(), secret, o.now)
	return nil
}

// seen are deliveries that a look has found, newest first.
type seen struct {
	deliveries []heard
	// floor is the oldest id that was looked at where there are older ones; "" where all
	// were.
	floor string
}

// status is that of a delivery that was seen, "" of another one.
func (s *seen) status(id string) string {
	i := slices.IndexFunc(s.deliveries, func(d heard) bool { return d.ID == id })
	if i < 0 {
		return ""
	}
	return s.deliveries[i].Status
}

// look lists the newest deliveries, back to those of the look before; missed says that it
// did not come that far.
func (o *listenOptions) look(ctx context.Context, before *seen) (now *seen, missed bool, err error) {
	now = &seen{}
	query := url.Values{"time_range": {"1h"}, "trigger_type": {"outbound"}, "limit": {strconv.Itoa(listenPage)}}
	for n := range listenPages {
		query.Set("offset", strconv.Itoa(n*listenPage))
		var page struct {
			Items []heard `json:"items"`
		}
		if err := o.api.call(ctx, http.MethodGet, "/connectors/"+o.connector+"/runs?"+query.Encode(), "", nil, &page); err != nil {
			return nil, false, fmt.Errorf("listing deliveries: %w", err)
		}
		for _, d := range page.Items {
			if now.status(d.ID) == "" { // a new one moves the pages
				now.deliveries = append(now.deliveries, d)
			}
		}
		now.floor = ""
		if len(page.Items) < listenPage {
			return now, false, nil
		}
		oldest := page.Items[listenPage-1].ID
		now.floor = oldest
		if before == nil || oldest <= before.floor || before.status(oldest) != "" {
			return now, false, nil
		}
	}
	return now, true, nil
}

// tell writes a line for each delivery that is new, and for each that has another status.
func (o *listenOptions) tell(ctx context.Context, now, before *seen, out io.Writer) error {
	for _, d := range slices.Backward(now.deliveries) {
		was := before.status(d.ID)
		if was == d.Status || was == "" && d.ID < before.floor {
			continue
		}
		var forwarded *forwarded
		if was == "" && o.to != nil && d.Status != "skipped" {
			forwarded = o.to.send(ctx, o.api, o.connector, d)
		}
		if err := o.write(out, d, forwarded); err != nil {
			return err
		}
	}
	return nil
}

// write writes the line of a delivery.
func (o *listenOptions) write(out io.Writer, d heard, f *forwarded) error {
	if o.json {
		text, err := json.Marshal(struct {
			ID        string     `json:"id"`
			RunID     string     `json:"run_id"`
			Status    string     `json:"status"`
			StartedAt time.Time  `json:"started_at"`
			Error     string     `json:"error,omitempty"`
			Forwarded *forwarded `json:"forwarded,omitempty"`
		}{d.ID, d.RunID, d.Status, d.StartedAt, d.Error, f})
		if err != nil {
			return fmt.Errorf("writing a delivery: %w", err)
		}
		_, err = fmt.Fprintln(out, jsonLine(text))
		return err
	}
	of := "run " + d.RunID
	if d.RunID == "" { // a test is of none
		of = printable(d.Kind)
	}
	line := fmt.Sprintf("%s  %s  %-9s  %s", o.now().Format(time.TimeOnly), d.ID, d.Status, of)
	if d.Error != "" {
		line += "  " + printable(d.Error)
	}
	if f != nil {
		line += "  -> " + cmp.Or(printable(f.Error), strconv.Itoa(f.Status))
	}
	_, err := fmt.Fprintln(out, line)
	return err
}
