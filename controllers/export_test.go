// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sweep lets a test sweep at a moment of its own.
func Sweep(ctx context.Context, reader client.Reader, store Store, clusterUID string) (int, error) {
	return newSweep(reader, Options{Store: store, ClusterUID: clusterUID}).run(ctx)
}
