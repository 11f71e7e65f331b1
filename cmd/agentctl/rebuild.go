// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/audit"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/store"
)

func newStoreRebuildRollupsCommand() *cobra.Command {
	var of open.Options
	cmd := &cobra.Command{
		Use:   "rebuild-rollups",
		Short: "Count the runs of agents and connectors anew",
		Long: `Count the runs of agents and connectors anew.

Statistics are kept as numbers of whole hours, days and months. Where these are
wrong, this counts them anew from history: each hour of which history has all
rows, and with them the days and months that they are part of. Hours of which
rows may have been deleted stay as they are, and so are not lost.

Gateways may run meanwhile: what ends is counted once, and numbers are exact all
the time but where they were wrong. An hour takes a transaction of its own; where
the command is broken off, run it again.

Run it where the store is reached, for instance in the manager's pod:
  kubectl -n agentplatform-system exec deploy/agentplatform-manager -- \
    agentctl store rebuild-rollups --store-dsn-file=/etc/agentplatform/postgres/dsn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return rebuildRollups(cmd.Context(), cmd.OutOrStdout(), of)
		},
	}
	of.Bind(cmd.Flags())
	return cmd
}

// rebuildRollups shows each day of a project as it is counted.
func rebuildRollups(ctx context.Context, out io.Writer, of open.Options) error {
	db, err := open.Store(ctx, of)
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer db.Close()
	var (
		shown day
		all   int64
	)
	command := audit.Command{Name: "store rebuild-rollups", Object: store.AuditObject{Kind: "store"}}
	err = audit.Run(ctx, db, command, func(ctx context.Context) error {
		return db.RebuildRollups(ctx, func(hour store.RollupHour) {
			all += hour.Runs
			if of := (day{hour.Project, hour.Begin.Format(time.DateOnly)}); of != shown {
				shown = of
				fmt.Fprintf(out, "project %s: %s\n", of.project, of.date)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("counting runs anew: %w", err)
	}
	_, err = fmt.Fprintf(out, "%d runs of agents and connectors were counted\n", all)
	return err
}

// day is one of a project.
type day struct {
	project uuid.UUID
	date    string
}
