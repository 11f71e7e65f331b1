// SPDX-License-Identifier: Apache-2.0

// Package dispatch serves the internal port for runners and builds. Package internal/dispatchapi
// has its routes. The token of a request belongs to one environment or deployment. A request for
// anything else finds nothing.
package dispatch
