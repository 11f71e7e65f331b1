// SPDX-License-Identifier: Apache-2.0

// Package delivery sends the results of runs to where outbound connectors point: at least
// once, signed, and repeated until the destination takes them or their schedule is over.
//
// A Sender makes deliveries of what ended runs have left in the outbox, claims those that
// are due, and sends each through the guarded client of package egress. What was seen of an
// attempt is recorded with that of others in one transaction. Whoever stops or dies in
// between leaves a claim that ends by itself: the attempt counts as lost, and the next one
// is somebody else's.
//
// What an attempt means for its delivery is decided by judge, which knows nothing of
// networks or stores.
package delivery
