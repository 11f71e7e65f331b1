// SPDX-License-Identifier: Apache-2.0

// Package runnerconfig defines the files that controllers mount into build and runner pods: their
// names and contents.
package runnerconfig

// Keys of a Secret with Git credentials, which are the names of the mounted files.
const (
	GitUsername    = "username"
	GitPassword    = "password"
	GitBearerToken = "bearerToken"
	GitIdentity    = "identity"    // SSH private key, PEM
	GitKnownHosts  = "known_hosts" // required for SSH
	GitCA          = "ca.crt"      // PEM, trusted instead of the system's authorities
)
