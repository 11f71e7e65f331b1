// SPDX-License-Identifier: Apache-2.0

//go:build !race

package scripttest

import "github.com/agentplatform/agentplatform/runner/script"

// runChild executes scripts with a memory limit.
func runChild(memory uint64) error { return script.Main(memory) }
