// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// What callers of the port keep to is what the store takes: with limits that
// differ, these are of different types and do not compile.
var (
	_ *[store.MaxOutput]byte        = (*[dispatchapi.MaxOutput]byte)(nil)
	_ *[store.MaxError]byte         = (*[dispatchapi.MaxError]byte)(nil)
	_ *[store.MaxModelAnswer]byte   = (*[dispatchapi.MaxModelAnswer]byte)(nil)
	_ *[store.MaxToolResult]byte    = (*[dispatchapi.MaxToolResult]byte)(nil)
	_ *[store.MaxPayload]byte       = (*[dispatchapi.MaxPayload]byte)(nil)
	_ *[store.MaxOutboundLinks]byte = (*[dispatchapi.MaxActions]byte)(nil)
	_ *[store.MaxBuildLog]byte      = (*[dispatchapi.MaxBuildLog]byte)(nil)
	_ *[store.MaxAgentConfig]byte   = (*[dispatchapi.MaxAgentConfig]byte)(nil)

	_ *[store.MaxAgentConfigs]byte = (*[dispatchapi.MaxAgentConfigs]byte)(nil)
	_ *[store.MaxAgents]byte       = (*[dispatchapi.MaxAgents]byte)(nil)
	_ *[store.MaxEntries]byte      = (*[dispatchapi.MaxEntries]byte)(nil)
	_ *[store.MaxDigests]byte      = (*[dispatchapi.MaxDigests]byte)(nil)
	_ *[store.MaxRunnerID]byte     = (*[dispatchapi.MaxRunnerID]byte)(nil)
)
