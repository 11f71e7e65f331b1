// SPDX-License-Identifier: Apache-2.0

// Package gitremote talks to Git servers over HTTPS and SSH. All that leaves goes
// through the guarded dialer, all that comes is bounded, and errors say what to do.
package gitremote
