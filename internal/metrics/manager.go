// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Manager is what the manager counts beside what controller-runtime does.
type Manager struct {
	renewed  prometheus.Gauge
	failures counters
	// destinations are changes of how deliveries of connectors go.
	destinations counters
	// desired and limited are of the runner pools that scale.
	desired, limited prometheus.Gauge
	// looks are those at repositories whose branches are followed.
	looks counters
	// rates are looks for exchange rates, latestRate the last day of which there is one.
	rates      counters
	latestRate prometheus.Gauge
}

// Results of a look for exchange rates.
const (
	RatesRead   = "read"
	RatesFailed = "failed"
)

// Ways in which the deliveries of a connector go from now on.
const (
	DestinationPaused  = "paused"
	DestinationFailing = "failing"
	DestinationResumed = "resumed"
)

// Results of a look at the repository of a project, in which environments follow branches.
const (
	LookAnswered = "answered"
	LookUnseen   = "folder_unseen"
	LookFailed   = "failed"
	LookLate     = "late"
)

// Reasons why the lease on the store was not renewed.
const (
	LeaseForeign     = "foreign"
	LeaseUnavailable = "unavailable"
)

// NewManager registers the manager's metrics; nil registers them nowhere.
func NewManager(registry prometheus.Registerer) *Manager {
	return &Manager{
		renewed: newGauge(registry, "agentplatform_store_lease_renewed_timestamp_seconds",
			"When this process last took or renewed the lease on the store, in seconds since 1970; 0 before. The leader does so every 10 s."),
		failures: newCounters(registry, "agentplatform_store_lease_failures_total",
			"Failed tries to take or renew the lease on the store, by reason: it serves another cluster or platform, or does not answer.",
			"reason", LeaseForeign, LeaseUnavailable),
		destinations: newCounters(registry, "agentplatform_connector_destination_changes_total",
			"Connectors whose deliveries go another way from then on: they fail, are paused (410), or go out again (resumed).",
			"to", DestinationPaused, DestinationFailing, DestinationResumed),
		desired: newGauge(registry, "agentplatform_runner_pools_desired_replicas",
			"Runner pods that the pools with a maxReplicas are to have, all of them together."),
		limited: newGauge(registry, "agentplatform_runner_pools_limited",
			"Runner pools that have maxReplicas of pods, and more runs than these have places for."),
		looks: newCounters(registry, "agentplatform_git_looks_total",
			"Looks at repositories whose branches are followed, by result: answered; folder_unseen, the branch was told and not what git.path holds there; "+
				"failed, refused or not reached; late, no answer in time.",
			"result", LookAnswered, LookUnseen, LookFailed, LookLate),
		rates: newCounters(registry, "agentplatform_exchange_rates_looks_total",
			"Looks for the central bank's exchange rates, by result: read, or failed, which is not reached, not understood or not stored.",
			"result", RatesRead, RatesFailed),
		latestRate: newGauge(registry, "agentplatform_exchange_rates_latest_timestamp_seconds",
			"The last day of which an exchange rate is known, as its beginning in seconds since 1970; 0 before a look."),
	}
}

// LeaseRenewed notes a renewal.
func (m *Manager) LeaseRenewed(at time.Time) { m.renewed.Set(float64(at.UnixMilli()) / 1000) }

// LeaseFailed counts a failure.
func (m *Manager) LeaseFailed(reason string) { m.failures.of(reason).Inc() }

// DestinationChanged counts a connector whose deliveries go another way from now on.
func (m *Manager) DestinationChanged(to string) { m.destinations.of(to).Inc() }

// Looked counts a look at a repository.
func (m *Manager) Looked(result string) { m.looks.of(result).Inc() }

// RatesLooked counts a look for exchange rates.
func (m *Manager) RatesLooked(result string) { m.rates.of(result).Inc() }

// LatestRate notes the last day of which an exchange rate is known.
func (m *Manager) LatestRate(day time.Time) { m.latestRate.Set(float64(day.Unix())) }

// PoolsScaled notes how many replicas the pools that scale are to have, and how many of these
// pools would have more than they may.
func (m *Manager) PoolsScaled(desired, limited int) {
	m.desired.Set(float64(desired))
	m.limited.Set(float64(limited))
}
