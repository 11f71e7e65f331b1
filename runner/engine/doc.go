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
//     asked twice for a turn whose answer was appended.
//   - A tool result is found by the id of its call, which stands in the model's
//     answer, so no tool is called twice.
//   - A tool that was started and has no result: the run fails with
//     tool_interrupted, unless the tool is declared idempotent; then it is called again.
//
// Entries are buffered and appended before the next thing that has an effect
// outside: a model request, or a tool call, whose tool_started is always
// acknowledged before the call. So where a runner is killed, at most the last answer
// is lost and its turn asked twice. The answers after the last such thing are handed
// back with the outcome, so that a run of one model turn costs no append of its own.
// A journal with entries of a kind that this release does not know is left to another
// runner: to go on past them might repeat what they record.
//
// # Limits
//
// A run has the timeout of its agent, which counts from the beginning of its first
// attempt and ends the model request or the tool that is under way. What the journal
// holds is still answered from it: a run whose last answer was appended in time ends
// with that. The data of its journal has a limit, too.
//
// # Ending
//
// Execute returns a value: completed, failed, or unfinished when the attempt was
// told to stop, lost its claim or its context ended. An unfinished run may be
// resumed by anyone from its journal.
package engine
