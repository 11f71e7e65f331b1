// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/store"
)

func newStoreRebuildRollupsCommand() *cobra.Command {
	var of open.Options
	cmd := &cobra.Command{
		Use:   "rebuild-rollups",
		Short: "Recount the runs of agents and connectors",
		Long: `Recount the runs of agents and connectors.

Statistics are stored per hour, day and month. If they are wrong, this command recounts them
from history: each hour that history has completely, and the days and months that contain
it. Hours whose rows may have been deleted stay as they are, so that nothing is lost.

Gateways can run meanwhile: each run is counted once. Each hour has a transaction of its own;
if you interrupt the command, run it again.

Run it where the store is reachable, for instance in the pod of the manager:
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

// rebuildRollups recounts all runs, and prints each day of a project when it is counted.
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
	err = auditCommand(ctx, db, "store rebuild-rollups", store.AuditObject{Kind: "store"}, func(ctx context.Context) error {
		return db.RebuildRollups(ctx, func(hour store.RollupHour) {
			all += hour.Runs
			if of := (day{hour.Project, hour.Begin.Format(time.DateOnly)}); of != shown {
				shown = of
				fmt.Fprintf(out, "project %s: %s\n", of.project, of.date)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("recounting runs: %w", err)
	}
	_, err = fmt.Fprintf(out, "%d runs of agents and connectors were counted\n", all)
	return err
}

// day is a day of a project.
type day struct {
	project uuid.UUID
	date    string
}
