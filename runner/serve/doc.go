// SPDX-License-Identifier: Apache-2.0

// Package serve executes agent runs: it claims them from dispatch, fetches the
// bundle that each names, runs the agent, and reports how it ended.
//
// # Claims
//
// A claim holds for a lease and is renewed by heartbeats. While dispatch cannot
// be reached, runs go on: what they did is appended when it is back. Only tool
// calls wait: none begins without a confirmed lease, because another runner may
// have the run by then. A claim that is lost ends its run here at once and
// without a word.
//
// # Ending
//
// When Run's context ends, no more runs are claimed. What is under way (a model
// request, a tool) is awaited, recorded, and the runs are given back, so that
// another runner resumes them. At the end of the grace period the rest is cut off.
package serve
