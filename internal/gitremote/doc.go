// SPDX-License-Identifier: Apache-2.0

// Package gitremote is a Git client for HTTPS and SSH. Connections use the guarded dialer, received
// data is limited, and errors contain the remedy.
package gitremote
