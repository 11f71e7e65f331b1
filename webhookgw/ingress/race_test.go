// SPDX-License-Identifier: Apache-2.0

//go:build race

package ingress

// raced says that the race detector is on: pools then drop some of what is given back
// to them, at random.
const raced = true
