// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import "time"

// Limits of the port, in bytes. The limits of data are the store's, which rejects or cuts larger
// data. Callers check before, so that they can return their own error.
const (
	// MaxRequest limits a JSON request with data, MaxSmallRequest one without data, MaxLogRequest a
	// whole log with all bytes escaped.
	MaxRequest      = 16 << 20
	MaxSmallRequest = 256 << 10
	MaxLogRequest   = 7 << 20
	// MaxOutput limits a run's output, MaxError the text of an error.
	MaxOutput = 1 << 20
	MaxError  = 16 << 10
	// MaxContext limits what scripts set in a run's context, as JSON.
	MaxContext = 64 << 10
	// MaxModelAnswer and MaxToolResult limit the data of journal entries.
	MaxModelAnswer = 1 << 20
	MaxToolResult  = 256 << 10
	// MaxJournal limits all entries of a run by JournalEntry.Size, which adds EntryOverhead to
	// each.
	MaxJournal    = 16 << 20
	EntryOverhead = 128
	// MaxModel limits the name of the model in a cost. A longer name is cut.
	MaxModel = 253
	// MaxFiles limits the attachments of a run together.
	MaxFiles = 10 << 20
	// MaxSavedFile limits a file that a run saves, MaxSavedBytes all its files. MaxSavedFiles is their number.
	MaxSavedFile  = 10 << 20
	MaxSavedBytes = 50 << 20
	MaxSavedFiles = 100
	// MaxFileName limits the name of a file, MaxMediaType its media type.
	MaxFileName  = 255
	MaxMediaType = 127
	// MaxSavedJournal limits the JSON of a SaveRequest, MaxSavedPart a part of a file that a runner reads.
	MaxSavedJournal = 1 << 20
	MaxSavedPart    = 512 << 10
	// MaxPayload limits one payload of a run, MaxSendRequest its request.
	MaxPayload     = 256 << 10
	MaxSendRequest = MaxPayload + 4<<10
	// MaxBuildLog limits a build's log.
	MaxBuildLog = 1 << 20
	// MaxAgentConfig limits one agent's configuration, MaxAgentConfigs the configurations of all
	// agents of a build together.
	MaxAgentConfig  = 64 << 10
	MaxAgentConfigs = 8 << 20
)

// Limits of the lists of a request.
const (
	// MaxAgents limits the agents of a build's result, MaxEntries the entries of a journal request.
	MaxAgents = 1000
	// MaxAgentModels limits the models of an agent.
	MaxAgentModels = 64
	// MaxConnectors limits the files of connectors/ in a build's result.
	MaxConnectors = 100
	// MaxTests limits the test cases of a build's result, MaxTestResults their JSON in bytes.
	MaxTests = 1000
	// MaxDayCosts limits the costs of a test case by day and currency.
	MaxDayCosts    = 64
	MaxTestResults = 3 << 18
	MaxEntries     = 1000
	// MaxAppends limits the appends that share a request.
	MaxAppends = 64
	// MaxActions limits the sending tools of an agent.
	MaxActions = 32
	// MaxLeases limits the claims in a heartbeat or a claim request, MaxDigests the bundles.
	MaxLeases  = 1024
	MaxDigests = 64
	// MaxRunnerID limits a runner's name, in bytes.
	MaxRunnerID = 253
	// MaxDriftReports limits the comparisons of MCP tools in a claim request, MaxDriftTools the tools of each, MaxDriftTool the
	// name of a tool in bytes.
	MaxDriftReports = 16
	MaxDriftTools   = 16
	MaxDriftTool    = 64
	// DriftReportInterval is the minimum interval between two reports about the same server of an agent.
	DriftReportInterval = 10 * time.Minute
)

// Limits of a run's JSON input in a runner. A decoded small value needs many times the memory of
// its text.
const (
	// MaxInputValues limits objects, lists, strings, numbers, true, false and null together.
	MaxInputValues = 100_000
	// MaxInputDepth limits nested objects and lists.
	MaxInputDepth = 1000
)
