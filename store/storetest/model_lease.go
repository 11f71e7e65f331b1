// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/store"
)

func (m *model) heartbeat(rt *rapid.T) {
	run, l := m.drawLease(rt)
	hold := holding(rt)
	lost := m.world.renewLeases(m.environment.Key(), heldClaims(l), hold)
	revived := run.status == store.RunQueued && run.token == l.Token && run.runner != ""
	switch {
	case revived:
		run.losses--
	case !run.current(l):
		m.Equal([]store.Lease{l}, lost)
		return
	}
	m.Empty(lost)
	run.status, run.expired = store.RunRunning, hold == expired
}

// drawLease draws a run and a claim on it: the current one, or another.
func (m *model) drawLease(rt *rapid.T) (*modelRun, store.Lease) {
	if len(m.runs) == 0 {
		rt.Skip("no run yet")
	}
	m.touched = m.runs[rapid.IntRange(0, len(m.runs)-1).Draw(rt, "run")]
	other := rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(rt, "another claim")
	return m.touched, store.Lease{Run: m.key(m.touched.ID), Token: m.touched.token - other}
}

// holding draws the duration of a claim.
func holding(rt *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{lease, expired}).Draw(rt, "lease")
}
