// SPDX-License-Identifier: Apache-2.0

// Package clients tests the gateway with third-party clients, receivers and an OpenTelemetry collector, and the facade with clients that are generated from
// its OpenAPI document. `make clients` runs it. It needs curl, openssl, python3 with urllib3, node, npm, chromium and h2load.
// -args -rest.installed tests an existing installation. The tests delete the objects that they create, and cancel a run.
package clients
