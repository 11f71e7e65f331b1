// SPDX-License-Identifier: Apache-2.0

// Package dispatch serves the internal port, at which runners fetch runs and
// builds report (see internal/dispatchapi for its routes). The token of a request
// says for which environment or deployment it speaks; a request for anything
// else finds nothing.
package dispatch
