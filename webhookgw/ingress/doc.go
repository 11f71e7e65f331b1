// SPDX-License-Identifier: Apache-2.0

// Package ingress serves the webhook URLs of inbound and sync connectors.
//
// A request is checked against a cached route and committed together with the
// requests that wait at the same moment. The commit asserts the connector's
// version, and every refusal is preceded by a fresh read, so that the cache
// never decides anything that a change before the request has made wrong.
package ingress
