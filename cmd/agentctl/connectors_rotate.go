// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

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
