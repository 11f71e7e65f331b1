// SPDX-License-Identifier: Apache-2.0

//go:build !race

package ingress

// raced means that the race detector is on. Pools then drop some returned values at random.
const raced = false
