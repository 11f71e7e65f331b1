// SPDX-License-Identifier: Apache-2.0

// Package ext stands in for a module in Traefik's repository which the Go module proxy
// does not serve. It is where other editions add to the configuration; this one adds
// nothing.
package ext

// HTTP is embedded in the configuration of HTTP.
type HTTP struct{}

// Router is embedded in the configuration of a router.
type Router struct{}
