// SPDX-License-Identifier: Apache-2.0

// Package serve executes agent runs. It claims them from dispatch, fetches their bundles, runs the
// agents and reports the results.
//
// # Claims
//
// A claim has a lease. The lease is short until the first heartbeat confirms it, and heartbeats
// renew it. If dispatch cannot be reached, runs continue and append their journals later. Only tool
// calls wait: no call begins without a confirmed lease, because another runner may have the run. If
// a claim is lost or its run is cancelled, the run ends here immediately and without a report.
//
// Claim requests name the runner's current runs. So dispatch can repeat a claim that was lost on
// its way and can name claims that are no longer current. A runner without a free slot sends
// requests only for this reason.
//
// # Bundles
//
// The runner prefetches bundles that are about to go live. If it cannot open a bundle, the bundle
// may belong to a newer release. The runner then reports it and releases its runs for other
// runners.
//
// # Shutdown
//
// When the context of Run ends, the runner claims no more runs and tells dispatch. Model requests
// and tool calls in progress can finish and are recorded. Then the runs are released, and another
// runner resumes them. After the grace period the runner cancels the remaining work.
package serve
