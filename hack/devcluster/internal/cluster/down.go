// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/host"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/snapshot"
)

// stopOrder lists the components in stop order. Components that would start other processes or report errors stop first.
var stopOrder = []string{
	layout.Kubelet, layout.Proxy, layout.CoreDNS, layout.Provisioner, layout.ControllerManager, layout.Scheduler,
	layout.APIServer, layout.Containerd, layout.Etcd,
}

// Down stops everything, removes everything and compares the host with the
// record from before the cluster.
func (l *local) Down(ctx context.Context) error {
	if _, err := os.Stat(l.Dir.Engine()); err != nil {
		l.Log.Say("there is no cluster in %s", l.Dir)
		return nil
	}
	if err := host.CheckRights(); err != nil {
		return err
	}
	before, err := snapshot.Load(l.Dir.Snapshot())
	if err != nil {
		return err
	}
	err = l.Log.Step("stopping the cluster", func() error {
		for _, name := range stopOrder {
			if err := l.stopComponent(ctx, name); err != nil {
				return err
			}
		}
		return host.KillAll(ctx, l.Dir)
	})
	if err != nil {
		return err
	}
	if err := l.Log.Step("removing what it made", func() error { return l.removeCluster(ctx, before) }); err != nil {
		return err
	}
	return l.verifyRemoval(ctx, before)
}

// removeCluster continues after an error: the comparison reports the leftovers.
func (l *local) removeCluster(ctx context.Context, before snapshot.Snapshot) error {
	errs := []error{
		host.UnmountAll(ctx, l.Dir),
		host.RemoveCgroups(before),
		host.NetworkDown(ctx, l.Dir, before),
		host.RestoreSettings(before),
	}
	now, err := snapshot.Take(ctx, l.Dir)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, host.RemoveFolders(before, snapshot.Diff(before, now, l.Dir)))
	if err := errors.Join(errs...); err != nil {
		return err // the state folder stays: a second try needs its record
	}
	return host.RemoveState(l.Dir)
}

// verifyRemoval fails if leftovers of the cluster exist, and reports other changes of the host in the meantime.
func (l *local) verifyRemoval(ctx context.Context, before snapshot.Snapshot) error {
	after, err := snapshot.Take(ctx, l.Dir)
	if err != nil {
		return err
	}
	if before.BootID != after.BootID {
		l.Log.Say("the host was started anew since the cluster came up; there is nothing to compare with")
		return nil
	}
	var mine []string
	for _, left := range snapshot.Diff(before, after, l.Dir) {
		if left.Mine {
			mine = append(mine, left.Kind+" "+left.Name)
		} else {
			l.Log.Say("    new since the cluster came up, but not of it: %s %s", left.Kind, left.Name)
		}
	}
	if len(mine) > 0 {
		return fmt.Errorf("taking the cluster down left:\n    %s", strings.Join(mine, "\n    "))
	}
	l.Log.Say("the cluster is gone: links, routes, packet filters, mounts, control groups, processes, folders " +
		"and settings of the kernel are as before")
	return nil
}
