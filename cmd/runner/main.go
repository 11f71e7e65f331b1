// SPDX-License-Identifier: Apache-2.0

// Command runner is what runs in a project's namespace: the steps of a build,
// and the pool that executes agent runs.
package main

import "github.com/agentplatform/agentplatform/cmd/runner/command"

func main() { command.Main() }
