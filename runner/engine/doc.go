// SPDX-License-Identifier: Apache-2.0

// Package engine executes one agent run.
//
// # Features
//
// The engine runs the loop of model answers and tool calls. Everything else that agents can do is a
// Feature. A feature adds tools, or wraps agents and calls.
//
// # Resume
//
// Each attempt starts the agent again and replays the journal:
//
//   - A model answer is found by the agent's path and its turn. A turn whose answer was appended
//     causes no second model request.
//   - A tool result is found by the ID of its call, which the model's answer contains. A tool is
//     never called twice for it. The effects of a script are found by the ID of their owner and
//     their number.
//   - A tool or effect that was started and has no result fails the run with tool_interrupted. An
//     idempotent one is repeated instead.
//   - A step, such as a script around an agent, is found by its ID and does not run again.
//
// Entries are buffered. They are appended before an effect that is not idempotent, and when they are
// 250 ms old. So a killed runner repeats at most the model requests and reads of this time. The
// outcome contains the entries after the last append, so a short run needs no append. A journal with
// an unknown kind of entry is left to another runner, because continuing could repeat a recorded
// effect.
//
// # Limits
//
// A run has the timeout of its agent. It counts from the beginning of the first attempt and ends the
// current model request or tool call. The journal is still replayed after it: a run whose last answer
// was appended in time completes. The size of a journal is limited too.
//
// # Outcome
//
// Execute returns completed, failed, or unfinished if the attempt was stopped, lost its claim or its
// context ended. Any runner can resume an unfinished run from its journal.
package engine
