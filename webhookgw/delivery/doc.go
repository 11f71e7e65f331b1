// SPDX-License-Identifier: Apache-2.0

// Package delivery sends the results of runs to the destinations of outbound connectors. It signs
// each request and retries it until the destination accepts it or the schedule ends. A destination
// gets each result at least once.
//
// A Sender creates deliveries from the outbox of ended runs, claims due deliveries, and sends each
// one through the guarded client of package egress. It records the outcomes of several attempts in
// one transaction. If a Sender stops or crashes, its claims expire. The attempt then counts as
// lost, and another Sender makes the next one.
//
// The function decideAttempt decides about the outcome of an attempt. It uses neither the network nor the
// store.
package delivery
