// SPDX-License-Identifier: Apache-2.0

// Package engine runs one agent run and is the only place that knows the agent
// framework (ADK).
//
// # Resuming
//
// The framework keeps no state between attempts. Each attempt starts the agent
// anew; the models and tools that the framework is given are wrapped, and what
// the journal already holds is answered from it:
//
//   - A model answer is found by the agent's path and its turn, so no model is
//     asked twice for the same turn.
//   - A tool result is found by the id of its call, which stands in the model's
//     answer, so no tool is called twice.
//   - A tool that was started and has no result: the run fails with
//     tool_interrupted, unless the tool is declared idempotent; then it is called again.
//
// Entries are buffered and appended before the next thing that has an effect
// outside: a model request, or a tool call, whose tool_started is always
// acknowledged before the call. The answers after the last such thing are handed
// back with the outcome, so that a run of one model turn costs no append of its own.
//
// # Ending
//
// Execute returns a value: completed, failed, or unfinished when the attempt was
// told to stop, lost its claim or its context ended. An unfinished run may be
// resumed by anyone from its journal.
package engine
