// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

func newLogsCommand() *cobra.Command {
	o := &deployOptions{}
	follow := false
	cmd := o.newCommand(&cobra.Command{
		Use:   "logs DEPLOYMENT",
		Short: "Show the build log of a deployment",
		Long: `Show the build log of a deployment. With -f the command follows the log until the deployment
has ended, shows what the deployment waits for, and reports how it ended.`,
		Example: `  agentctl logs 2fd4e1c6
  agentctl logs -f 2fd4e1c6 --environment production`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("DEPLOYMENT: name one deployment by its commit or its ID, as shown by `agentctl status --environment ENVIRONMENT`")
			}
			return nil
		},
	}, func(ctx context.Context, args []string) error {
		id, err := o.api.findDeployment(ctx, o.environment, args[0], purpose{})
		if err != nil {
			return err
		}
		d, err := o.api.readDeployment(ctx, id)
		if err != nil {
			return err
		}
		if follow {
			if d, err = followToEnd(ctx, o.api, d, o.out, o.messages); err != nil {
				return err
			}
			return reportOutcome(d, o.api.environmentName(ctx, d), o.messages)
		}
		log := restclient.ValueOf(d.Value.BuildLogs)
		if o.output != outputText {
			return o.printValue(o.out, map[string]string{"build_logs": log})
		}
		_, err = io.WriteString(o.out, printableLines(log))
		return err
	})
	setOutcome(cmd, "the deployment that -f followed failed or was cancelled")
	bindLookup(cmd.Flags(), &o.environment)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the deployment has ended")
	cmd.MarkFlagsMutuallyExclusive("follow", "output")
	return cmd
}
