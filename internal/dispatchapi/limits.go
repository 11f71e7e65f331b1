// SPDX-License-Identifier: Apache-2.0

package dispatchapi

// Limits of what the port takes, in bytes. Those of data are the store's, which
// refuses or cuts what is beyond them. Callers check first, so that they can say in
// their own words what was too large.
const (
	// MaxRequest bounds a JSON request that carries data, MaxSmallRequest one that
	// carries none, MaxLogRequest a whole log of which every byte is escaped.
	MaxRequest      = 16 << 20
	MaxSmallRequest = 256 << 10
	MaxLogRequest   = 7 << 20
	// MaxOutput bounds a run's output, MaxError the text of an error.
	MaxOutput = 1 << 20
	MaxError  = 16 << 10
	// MaxModelAnswer and MaxToolResult bound the data of journal entries.
	MaxModelAnswer = 1 << 20
	MaxToolResult  = 256 << 10
	// MaxJournal bounds all entries of a run by JournalEntry.Size, which counts each
	// for EntryOverhead more than it holds.
	MaxJournal    = 16 << 20
	EntryOverhead = 128
	// MaxModel bounds the name of the model in what a call cost; the rest is cut.
	MaxModel = 253
	// MaxFiles bounds the attachments of a run together.
	MaxFiles = 10 << 20
	// MaxPayload bounds what a run sends at once, MaxSendRequest the request that does.
	MaxPayload     = 256 << 10
	MaxSendRequest = MaxPayload + 4<<10
	// MaxBuildLog bounds a build's log.
	MaxBuildLog = 1 << 20
	// MaxAgentConfig bounds one agent's configuration, MaxAgentConfigs those of all
	// agents of a build: its result has room for so much.
	MaxAgentConfig  = 64 << 10
	MaxAgentConfigs = 8 << 20
)

// Limits of the lists of a request.
const (
	// MaxAgents bounds those of a build's result, MaxEntries those of a journal request.
	MaxAgents = 1000
	// MaxConnectors bounds the files of connectors/ of a build's result.
	MaxConnectors = 100
	// MaxTests bounds the test cases of a build's result, MaxTestResults their bytes of
	// JSON together.
	MaxTests = 1000
	// MaxDayCosts bounds what a test case has cost, by day and currency.
	MaxDayCosts    = 64
	MaxTestResults = 3 << 18
	MaxEntries     = 1000
	// MaxActions bounds the tools of an agent that send.
	MaxActions = 32
	// MaxLeases bounds the claims that a heartbeat or a claim names, MaxDigests the
	// bundles.
	MaxLeases  = 1024
	MaxDigests = 64
	// MaxRunnerID is the most bytes of a runner's name.
	MaxRunnerID = 253
)

// Limits of a run's JSON input, which runners keep: decoded, a small value takes
// many times the memory of its text.
const (
	// MaxInputValues is the most objects, lists, strings, numbers, true, false and
	// null together.
	MaxInputValues = 100_000
	// MaxInputDepth is the most objects and lists in each other.
	MaxInputDepth = 1000
)

// Codes of runs that are beyond a limit.
const (
	CodeInputTooComplex = "input_too_complex"
	CodeOutputTooLarge  = "output_too_large"
	CodeAnswerTooLarge  = "model_answer_too_large"
	CodeJournalTooLarge = "journal_too_large"
)
