// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// rotateOptions are the flags of `connectors rotate-secret`.
type rotateOptions struct {
	restOptions
	output

	environment string
	grace       time.Duration
	// graceGiven: --grace was given, also as 0.
	graceGiven bool

	api           *rest
	out, messages io.Writer
}

func newConnectorsRotateCommand() *cobra.Command {
	o := &rotateOptions{}
	cmd := &cobra.Command{
		Use:   "rotate-secret CONNECTOR",
		Short: "Generate a new secret for a connector",
		Long: `Generate a new secret for a connector, and print it once it is in effect. The secrets before
stay valid for the connector's grace period, a day by default. --grace sets the period of this
rotation alone; 0s ends the secrets before at once.`,
		Example: "  agentctl connectors rotate-secret orders --environment production --grace 48h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.client(); err != nil {
				return err
			}
			o.out, o.messages, o.graceGiven = cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Flags().Changed("grace")
			return o.rotate(cmd.Context(), args[0])
		},
	}
	o.restOptions.bind(cmd.Flags())
	o.output.bind(cmd.Flags())
	bindWithin(cmd.Flags(), &o.environment)
	cmd.Flags().DurationVar(&o.grace, "grace", 0,
		"how long the secrets before stay valid after this rotation; without it as the connector has it")
	return cmd
}

func (o *rotateOptions) rotate(ctx context.Context, connector string) error {
	body := map[string]int64{}
	if o.graceGiven {
		if o.grace < 0 || o.grace%time.Second != 0 {
			return errors.New("--grace: must be whole seconds, 0s or more, such as 48h")
		}
		body["grace_seconds"] = int64(o.grace / time.Second)
	}
	id, err := o.api.connectorID(ctx, "CONNECTOR", o.environment, connector)
	if err != nil {
		return err
	}
	var shown json.RawMessage
	if err := o.api.call(ctx, http.MethodPost, "/connectors/"+id+"/rotate-secret", rand.Text(), body, &shown); err != nil {
		return fmt.Errorf("rotating the secret of connector %s: %w", printable(connector), err)
	}
	if o.output != outputText {
		return o.write(o.out, shown)
	}
	var rotated struct {
		Secret        string `json:"secret"`
		SigningSecret string `json:"signing_secret"`
	}
	if err := json.Unmarshal(shown, &rotated); err != nil {
		return fmt.Errorf("reading the connector: %w", err)
	}
	said := "the connector has a new secret; the secrets before stay valid for its grace period"
	switch {
	case o.graceGiven && o.grace == 0:
		said = "the connector has a new secret; the secrets before have ended"
	case o.graceGiven:
		said = fmt.Sprintf("the connector has a new secret; the secrets before stay valid for %s", o.grace)
	}
	fmt.Fprintln(o.messages, said)
	_, err = fmt.Fprintln(o.out, cmp.Or(rotated.Secret, rotated.SigningSecret))
	return err
}
