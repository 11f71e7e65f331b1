// SPDX-License-Identifier: Apache-2.0

//go:build race

package scripttest

import (
	"os"

	"github.com/agentplatform/agentplatform/runner/script"
)

// runChild executes scripts without a memory limit, because the race detector reserves more address space than any limit.
func runChild(uint64) error {
	return script.Serve(os.Stdin, os.Stdout, func() { os.Exit(0) })
}
