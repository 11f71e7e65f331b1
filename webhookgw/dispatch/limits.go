// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	wire "github.com/agentplatform/agentplatform/internal/dispatch"
	"github.com/agentplatform/agentplatform/store"
)

// What callers of the port keep to is what the store takes: with limits that
// differ, these are of different types and do not compile.
var (
	_ *[store.MaxOutput]byte      = (*[wire.MaxOutput]byte)(nil)
	_ *[store.MaxError]byte       = (*[wire.MaxError]byte)(nil)
	_ *[store.MaxModelAnswer]byte = (*[wire.MaxModelAnswer]byte)(nil)
	_ *[store.MaxToolResult]byte  = (*[wire.MaxToolResult]byte)(nil)
	_ *[store.MaxBuildLog]byte    = (*[wire.MaxBuildLog]byte)(nil)
	_ *[store.MaxAgentConfig]byte = (*[wire.MaxAgentConfig]byte)(nil)

	_ *[store.MaxAgentConfigs]byte = (*[wire.MaxAgentConfigs]byte)(nil)
	_ *[store.MaxAgents]byte       = (*[wire.MaxAgents]byte)(nil)
	_ *[store.MaxEntries]byte      = (*[wire.MaxEntries]byte)(nil)
	_ *[store.MaxDigests]byte      = (*[wire.MaxDigests]byte)(nil)
	_ *[store.MaxRunnerID]byte     = (*[wire.MaxRunnerID]byte)(nil)
)
