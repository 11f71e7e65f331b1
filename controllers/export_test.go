// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/store"
)

// Sweep lets a test sweep at a moment of its own.
func Sweep(ctx context.Context, reader client.Reader, control store.Control) (int, error) {
	return newSweep(reader, Options{Store: control}).run(ctx)
}
