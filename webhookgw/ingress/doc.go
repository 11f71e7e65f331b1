// SPDX-License-Identifier: Apache-2.0

// Package ingress serves the webhook URLs of inbound and sync connectors.
//
// A request is checked against a cached route and committed together with the
// requests that wait at the same moment. The commit asserts the connector's
// version, and every refusal is preceded by a fresh read, so that the cache
// never decides anything that a change before the request has made wrong.
//
// What a request takes of the gateway is bounded for all and for its project, which
// has a part of it: its place at the committer, that of a large body, which is
// stored while it comes in, and that of a caller who waits for the answer. Who
// waits costs the store nothing: all are asked for at once, and woken by hints.
package ingress
