// SPDX-License-Identifier: Apache-2.0

// Package ingress serves the webhook URLs of connectors that have callers.
//
// A request is checked against a cached route and committed together with other waiting requests.
// The commit asserts the connector's version, and the handler reads the route again before each
// rejection. So an outdated cache never decides about a request.
//
// The capacity of the gateway is limited in total and per project: slots at the committer, slots
// for large bodies, which are stored while they arrive, and slots for callers that wait for
// results. Waiting callers cost no queries of their own. The gateway queries the store for all of
// them at once, and hints wake them.
package ingress
