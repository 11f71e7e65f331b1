// SPDX-License-Identifier: Apache-2.0

package dispatchapi

// Limits of what the port takes, in bytes. Those of data are the store's, which
// refuses or cuts what is beyond them; callers keep them first, to say what was
// too large in words of their own.
const (
	// MaxRequest is of a JSON request that carries data, MaxSmallRequest of one
	// that does not, MaxLogRequest of a whole log whose every byte is escaped.
	MaxRequest      = 16 << 20
	MaxSmallRequest = 256 << 10
	MaxLogRequest   = 7 << 20
	// MaxOutput is of a run's output, MaxError of an error's text.
	MaxOutput = 1 << 20
	MaxError  = 16 << 10
	// MaxModelAnswer and MaxToolResult are of the data of journal entries.
	MaxModelAnswer = 1 << 20
	MaxToolResult  = 256 << 10
	// MaxBuildLog is of a build's log.
	MaxBuildLog = 1 << 20
	// MaxAgentConfig is of one agent's configuration, MaxAgentConfigs of all of a
	// build, for which its result has room.
	MaxAgentConfig  = 64 << 10
	MaxAgentConfigs = 8 << 20
)

// Limits of the lists of a request.
const (
	// MaxAgents is of a build's result, MaxEntries of journal entries.
	MaxAgents  = 1000
	MaxEntries = 1000
	// MaxLeases is of a heartbeat, MaxDigests of the bundles that a claim names.
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
)
