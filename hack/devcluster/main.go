// SPDX-License-Identifier: Apache-2.0

// Command devcluster brings up a real one-node Kubernetes for development and
// tests: kind where a Docker engine answers, else Kubernetes built from its Go
// modules and run as plain processes. It also finds or builds the binaries
// that envtest needs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		cancel()
		os.Exit(1)
	}
}
