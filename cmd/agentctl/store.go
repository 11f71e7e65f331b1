// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/cmd/internal/audit"
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
		Short: "Hand the data store of another cluster to this one",
		Long: `Hand the data store of another cluster to this one.

One store serves one cluster at a time. After a move the manager of the new
cluster waits until the store is adopted; it may be, a minute after the
manager of the old cluster was last seen. The first object of each kind and
name then takes over what the store knows under it: ids, secrets, live
versions and history stay.

Until --finish nothing is swept from the store, so that the objects may come
back in any order. Run it with --finish once all of them are there: what the
store knows and the cluster does not have is then removed.

Run it where the store is reached, for instance in the manager's pod:
  kubectl -n agentplatform-system exec deploy/agentplatform-manager -- \
    agentctl store adopt --store-dsn-file=/etc/agentplatform/postgres/dsn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	o.store.Bind(flags)
	flags.BoolVar(&o.finish, "finish", false, "all objects are there: what the cluster does not have may be swept")
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait for the minute after which a store may be adopted")
	return cmd
}

func (o *adoptOptions) run(ctx context.Context, out io.Writer) error {
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
		err := audit.Run(ctx, db, audit.Command{Name: "store adopt --finish", Object: object}, func(ctx context.Context) error {
			return db.FinishAdoption(ctx, uid)
		})
		if err != nil {
			return fmt.Errorf("finishing the adoption by cluster %s: %w", uid, err)
		}
		_, err = fmt.Fprintln(out, "the adoption is finished; the manager's next sweep removes what the cluster does not have")
		return err
	}
	adopted := 0
	err = audit.Run(ctx, db, audit.Command{Name: "store adopt", Object: object}, func(ctx context.Context) (err error) {
		adopted, err = adopt(ctx, db, uid, o.wait)
		return err
	})
	if err != nil {
		return fmt.Errorf("adopting the store for cluster %s: %w", uid, err)
	}
	_, err = fmt.Fprintf(out, "the store serves cluster %s now, with %d objects to come; run it with --finish once they are there\n", uid, adopted)
	return err
}

// adopt hands the store over, waiting at most so long for the old manager's
// lease to be old enough.
func adopt(ctx context.Context, db store.Clusters, uid string, wait time.Duration) (int, error) {
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
	c, err := (&cluster{options: o.clusterOptions}).client()
	if err != nil {
		return "", err
	}
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading the cluster's uid, that of the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}
