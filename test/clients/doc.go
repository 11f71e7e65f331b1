// SPDX-License-Identifier: Apache-2.0

// Package clients tests the gateway with programs that others have written: what they send,
// and what they make of what is sent to them. `make clients` runs it; it needs curl, openssl,
// python3 with urllib3, node, npm, chromium and h2load.
package clients
