// SPDX-License-Identifier: Apache-2.0

// Package serve executes agent runs: it claims them from dispatch, fetches the
// bundle that each names, runs the agent, and reports how it ended.
//
// # Claims
//
// A claim holds for a lease, which is short until the first heartbeat names it, and is
// renewed by heartbeats. While dispatch cannot be reached, runs go on: what they did is
// appended when it is back. Only tool calls wait: none begins without a confirmed
// lease, because another runner may have the run by then. A claim that is lost, or
// whose run was cancelled, ends its run here at once and without a word.
//
// Requests for runs name what the runner works on. So dispatch hands out again what
// got lost on its way, and says what is no longer current; a runner without a free
// place asks for the sake of that alone.
//
// # Bundles
//
// What is about to go live is fetched beside all else. A bundle that this runner cannot
// open may be of a later release: it says so, and gives the runs of it back for others.
//
// # Ending
//
// When Run's context ends, no more runs are claimed, and dispatch is told so. What is under way (a model
// request, a tool) is awaited, recorded, and the runs are given back, so that
// another runner resumes them. At the end of the grace period the rest is cut off.
package serve
