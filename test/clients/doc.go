// SPDX-License-Identifier: Apache-2.0

// Package clients tests the gateway with programs that others have written: what they send,
// and what they make of what is sent to them; and the facade with clients that are generated
// from its description. `make clients` runs it; it needs curl, openssl, python3 with urllib3,
// node, npm, chromium and h2load. With -args -rest.installed the clients are those of an
// installation that is there: what they make of it they take away again, but for a run that
// they cancel.
package clients
