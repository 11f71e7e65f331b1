// SPDX-License-Identifier: Apache-2.0

// Package push takes the push webhooks of Git providers at the gateway's public port. Nobody
// proves there who they are, so that a call can ask for nothing but a look at the project's
// repository, which the manager takes soon, and of a project there is one such row at a time.
package push
