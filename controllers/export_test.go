// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/store"
)

// Sweep runs one sweep.
func Sweep(ctx context.Context, reader client.Reader, control store.Control, limit int, within ...string) (int, error) {
	return newSweep(reader, nil, Options{Store: control, SweepLimit: limit, Namespaces: within}).removeDeleted(ctx)
}

// SweepUntil sweeps until wait, which is called between sweeps, returns an error.
func SweepUntil(
	ctx context.Context, c client.Client, control store.Control, systemNamespace string, wait func(context.Context, time.Duration) error,
) error {
	s := newSweep(c, c, Options{Store: control, SystemNamespace: systemNamespace})
	s.wait = wait
	return s.Start(ctx)
}
