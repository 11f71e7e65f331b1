// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Manager has the metrics of the manager, except the metrics of controller-runtime.
type Manager struct {
	renewed  prometheus.Gauge
	failures counters
	// destinations counts changes of a connector's delivery status.
	destinations counters
	// desired and limited describe autoscaled runner pools.
	desired, limited prometheus.Gauge
	// looks counts polls of repositories with followed branches.
	looks counters
	// rates counts polls of exchange rates. latestRate is the last day with a rate.
	rates      counters
	latestRate prometheus.Gauge
}

// Results of a poll of exchange rates.
const (
	RatesRead   = "read"
	RatesFailed = "failed"
)

// Delivery statuses of a connector.
const (
	DestinationPaused  = "paused"
	DestinationFailing = "failing"
	DestinationResumed = "resumed"
)

// Results of a poll of a project's repository.
const (
	LookAnswered = "answered"
	LookUnseen   = "folder_unseen"
	LookFailed   = "failed"
	LookLate     = "late"
)

// Reasons for a failed renewal of the store's lease.
const (
	LeaseForeign     = "foreign"
	LeaseUnavailable = "unavailable"
)

// NewManager registers the manager's metrics; nil registers none.
func NewManager(registry prometheus.Registerer) *Manager {
	return &Manager{
		renewed: newGauge(registry, "agentplatform_store_lease_renewed_timestamp_seconds",
			"Unix time at which this process last acquired or renewed the lease on the store; 0 before. The leader renews it every 10 s."),
		failures: newCounters(registry, "agentplatform_store_lease_failures_total",
			"Failed attempts to acquire or renew the lease on the store, by reason: foreign (the store serves another cluster or platform) or unavailable.",
			"reason", LeaseForeign, LeaseUnavailable),
		destinations: newCounters(registry, "agentplatform_connector_destination_changes_total",
			"Changes of the delivery state of connectors: failing, paused (410) or resumed.",
			"to", DestinationPaused, DestinationFailing, DestinationResumed),
		desired: newGauge(registry, "agentplatform_runner_pools_desired_replicas",
			"Desired runner pods of all pools with maxReplicas."),
		limited: newGauge(registry, "agentplatform_runner_pools_limited",
			"Runner pools that are at maxReplicas and have more runs than slots."),
		looks: newCounters(registry, "agentplatform_git_looks_total",
			"Polls of followed repositories by result: answered, folder_unseen (the server reported the branch, but not the folder git.path), "+
				"failed (refused or unreachable), or late (no answer in time).",
			"result", LookAnswered, LookUnseen, LookFailed, LookLate),
		rates: newCounters(registry, "agentplatform_exchange_rates_looks_total",
			"Downloads of the central bank's exchange rates by result: read or failed.",
			"result", RatesRead, RatesFailed),
		latestRate: newGauge(registry, "agentplatform_exchange_rates_latest_timestamp_seconds",
			"Unix time of the start of the latest day with a known exchange rate; 0 before the first download."),
	}
}

// LeaseRenewed records a renewal.
func (m *Manager) LeaseRenewed(at time.Time) { m.renewed.Set(float64(at.UnixMilli()) / 1000) }

// LeaseFailed counts a failure.
func (m *Manager) LeaseFailed(reason string) { m.failures.counterOf(reason).Inc() }

// DestinationChanged counts a change of a connector's delivery status.
func (m *Manager) DestinationChanged(to string) { m.destinations.counterOf(to).Inc() }

// Looked counts a poll of a repository.
func (m *Manager) Looked(result string) { m.looks.counterOf(result).Inc() }

// RatesLooked counts a poll of exchange rates.
func (m *Manager) RatesLooked(result string) { m.rates.counterOf(result).Inc() }

// LatestRate records the last day with an exchange rate.
func (m *Manager) LatestRate(day time.Time) { m.latestRate.Set(float64(day.Unix())) }

// PoolsScaled records the desired replicas of autoscaled pools, and the number of pools that their
// maximum limits.
func (m *Manager) PoolsScaled(desired, limited int) {
	m.desired.Set(float64(desired))
	m.limited.Set(float64(limited))
}

// NewSweepRefused registers the gauge of objects that the last sweep left in the store. Nil
// registers none.
func NewSweepRefused(registry prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentplatform_sweep_refused_objects",
		Help: "Objects in the store that Kubernetes lacks and the last sweep did not remove, because they are most objects of their kind.",
	}, []string{"kind"})
}
