// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// The limits for callers of this port equal the limits of the store. If they differ, the array
// types differ and this does not compile.
var (
	_ *[store.MaxContext]byte       = (*[dispatchapi.MaxContext]byte)(nil)
	_ *[store.MaxOutput]byte        = (*[dispatchapi.MaxOutput]byte)(nil)
	_ *[store.MaxError]byte         = (*[dispatchapi.MaxError]byte)(nil)
	_ *[store.MaxModelAnswer]byte   = (*[dispatchapi.MaxModelAnswer]byte)(nil)
	_ *[store.MaxToolResult]byte    = (*[dispatchapi.MaxToolResult]byte)(nil)
	_ *[store.MaxSavedFile]byte     = (*[dispatchapi.MaxSavedFile]byte)(nil)
	_ *[store.MaxSavedBytes]byte    = (*[dispatchapi.MaxSavedBytes]byte)(nil)
	_ *[store.MaxSavedFiles]byte    = (*[dispatchapi.MaxSavedFiles]byte)(nil)
	_ *[store.MaxFileName]byte      = (*[dispatchapi.MaxFileName]byte)(nil)
	_ *[store.MaxMediaType]byte     = (*[dispatchapi.MaxMediaType]byte)(nil)
	_ *[store.MaxPayload]byte       = (*[dispatchapi.MaxPayload]byte)(nil)
	_ *[store.MaxOutboundLinks]byte = (*[dispatchapi.MaxActions]byte)(nil)
	_ *[store.MaxBuildLog]byte      = (*[dispatchapi.MaxBuildLog]byte)(nil)
	_ *[store.MaxAgentConfig]byte   = (*[dispatchapi.MaxAgentConfig]byte)(nil)

	_ *[store.MaxAgentConfigs]byte = (*[dispatchapi.MaxAgentConfigs]byte)(nil)
	_ *[store.MaxAgents]byte       = (*[dispatchapi.MaxAgents]byte)(nil)
	_ *[store.MaxAgentModels]byte  = (*[dispatchapi.MaxAgentModels]byte)(nil)
	_ *[store.MaxEntries]byte      = (*[dispatchapi.MaxEntries]byte)(nil)
	_ *[store.MaxDigests]byte      = (*[dispatchapi.MaxDigests]byte)(nil)
	_ *[store.MaxRunnerID]byte     = (*[dispatchapi.MaxRunnerID]byte)(nil)

	_ *[store.MaxDriftReports]byte = (*[dispatchapi.MaxDriftReports]byte)(nil)
	_ *[store.MaxDriftTools]byte   = (*[dispatchapi.MaxDriftTools]byte)(nil)
	_ *[store.MaxDriftTool]byte    = (*[dispatchapi.MaxDriftTool]byte)(nil)
	_ *[store.DriftRefresh]byte    = (*[dispatchapi.DriftReportInterval]byte)(nil)
)
