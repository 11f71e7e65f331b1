// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/store"
)

// adoptOptions are the flags of `store adopt`.
type adoptOptions struct {
	clusterOptions
	store  open.Options
	finish bool
	wait   time.Duration
}

func newStoreAdoptCommand() *cobra.Command {
	o := &adoptOptions{}
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Move the data store of another cluster to this one",
		Long: `Move the data store of another cluster to this one.

A store serves one cluster at a time. After a move, the manager of the new cluster waits
until the store is adopted. You can adopt it a minute after the manager of the old cluster
was last seen. The first object with a kind and a name then takes over the data that the
store has under them: IDs, secrets, live versions and history stay.

Until --finish the platform removes nothing from the store, so that you can create the
objects in any order. Run the command with --finish when all of them exist. The platform
then removes the data of objects that the cluster does not have.

Run it where the store is reachable, for instance in the pod of the manager:
  kubectl -n agentplatform-system exec deploy/agentplatform-manager -- \
    agentctl store adopt --store-dsn-file=/etc/agentplatform/postgres/dsn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.adoptStore(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.bindFlags(flags)
	o.store.Bind(flags)
	flags.BoolVar(&o.finish, "finish", false, "all objects exist: remove the data of objects that the cluster does not have")
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait until the store can be adopted")
	return cmd
}

func (o *adoptOptions) adoptStore(ctx context.Context, out io.Writer) error {
	uid, err := o.clusterUID(ctx)
	if err != nil {
		return err
	}
	db, err := open.Store(ctx, o.store)
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer db.Close()
	object := store.AuditObject{Kind: "cluster", ID: uid}
	if o.finish {
		err := auditCommand(ctx, db, "store adopt --finish", object, func(ctx context.Context) error {
			return db.FinishAdoption(ctx, uid)
		})
		if err != nil {
			return fmt.Errorf("finishing the adoption by cluster %s: %w", uid, err)
		}
		_, err = fmt.Fprintln(out, "the adoption is finished; the next sweep of the manager removes the data of objects that the cluster does not have")
		return err
	}
	adopted := 0
	err = auditCommand(ctx, db, "store adopt", object, func(ctx context.Context) (err error) {
		adopted, err = adoptStore(ctx, db, uid, o.wait)
		return err
	})
	if err != nil {
		return fmt.Errorf("adopting the store for cluster %s: %w", uid, err)
	}
	_, err = fmt.Fprintf(out, "the store now serves cluster %s; %d objects are missing; run the command with --finish when they exist\n", uid, adopted)
	return err
}

// adoptStore moves the store to a cluster. It waits for the lease of the old manager to become old enough, but not longer than
// wait.
func adoptStore(ctx context.Context, db store.Clusters, uid string, wait time.Duration) (int, error) {
	for {
		adopted, err := db.AdoptCluster(ctx, uid)
		var inUse *store.LeaseInUseError
		if !errors.As(err, &inUse) {
			return adopted, err
		}
		left := store.AdoptionAge - inUse.Lease.Age + time.Second
		if left > wait {
			return 0, err
		}
		wait -= left
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, context.Cause(ctx)
		}
	}
}

func (o *adoptOptions) clusterUID(ctx context.Context) (string, error) {
	c, err := (&cluster{options: o.clusterOptions}).newClient()
	if err != nil {
		return "", err
	}
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading the UID of the namespace %s, which identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}

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

// outcomeTimeout bounds recording the outcome of a command that was interrupted.
const outcomeTimeout = 5 * time.Second

// auditCommand records a command of the platform operator on an object in the audit log, runs it, and records whether it failed. name
// is the command line after agentctl. auditCommand does not run a command that it cannot record. If only the outcome cannot be
// recorded, the command has been run and the error says so.
func auditCommand(ctx context.Context, log store.Audit, name string, object store.AuditObject, run func(context.Context) error) error {
	actor := store.AuditActor{Kind: store.AuditCommand, Name: localUser()}
	id, err := log.RecordAudit(ctx, store.AuditEntry{Operation: name, Object: object, Actor: actor})
	if err != nil {
		return fmt.Errorf("recording the command, which was not run: %w", err)
	}
	failed := run(ctx)
	outcome := store.AuditOutcome{}
	if failed != nil {
		outcome.Code = "failed" // the error may contain data that the log must not store
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
	defer cancel()
	if err := log.RecordAuditOutcome(ctx, uuid.Nil, id, outcome); err != nil {
		return errors.Join(failed, fmt.Errorf("recording the outcome of the command, which was run: %w", err))
	}
	return failed
}

// localUser returns user@host, as far as the system reports them.
func localUser() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
