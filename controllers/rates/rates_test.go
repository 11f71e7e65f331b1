// SPDX-License-Identifier: Apache-2.0

package rates_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/agentplatform/agentplatform/controllers/rates"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

// file is a file of the bank with a weekend between its days.
const file = `<?xml version="1.0" encoding="UTF-8"?><gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref"><gesmes:subject>Reference rates</gesmes:subject><gesmes:Sender><gesmes:name>European Central Bank</gesmes:name></gesmes:Sender><Cube><Cube time="2026-03-02"><Cube currency="USD" rate="1.1698"/><Cube currency="JPY" rate="184.06"/></Cube><Cube time="2026-02-27"><Cube currency="USD" rate="1.18"/><Cube currency="JPY" rate="184.1"/></Cube></Cube></gesmes:Envelope>`

func day(t *testing.T, text string) store.Day {
	t.Helper()
	at, err := time.Parse(time.DateOnly, text)
	require.NoError(t, err)
	require.Equal(t, text, store.DayOf(at).String())
	return store.DayOf(at)
}

func TestParse_ReadsBankFile(t *testing.T) {
	t.Parallel()
	got, err := rates.Parse(strings.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, []store.Rate{
		{Currency: store.USD, Day: day(t, "2026-03-02"), Micros: 1_169_800}, {Currency: store.USD, Day: day(t, "2026-02-27"), Micros: 1_180_000},
	}, got)
	for name, text := range map[string]string{
		"empty response":       "",
		"HTML page":            "<html><body>moved</body></html>",
		"no rate for dollars":  strings.ReplaceAll(file, "USD", "GBP"),
		"malformed date":       strings.Replace(file, "2026-03-02", "02.03.2026", 1),
		"rate is not a number": strings.Replace(file, "1.1698", "N/A", 1),
		"rate of zero":         strings.Replace(file, "1.1698", "0", 1),
		"truncated document":   file[:len(file)-40],
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rates.Parse(strings.NewReader(text))
			require.Error(t, err)
		})
	}
}

// kept stores rates.
type kept struct{ all []store.Rate }

func (k *kept) PutRates(_ context.Context, rates []store.Rate) error { k.all = rates; return nil }

func (k *kept) Rates(context.Context, store.Currency, store.Day, store.Day) ([]store.Rate, error) {
	return k.all, nil
}

func (k *kept) LatestRate(context.Context, store.Currency) (store.Day, error) {
	if len(k.all) == 0 {
		return 0, store.ErrNotFound
	}
	return k.all[0].Day, nil
}

func TestFollower_Retries(t *testing.T) {
	t.Parallel()
	answers := make(chan func(http.ResponseWriter))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { (<-answers)(w) }))
	t.Cleanup(server.Close)
	guard := egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Rates: {netip.MustParsePrefix("127.0.0.0/8")}}})
	k, clock, registry := &kept{}, clocktesting.NewFakeClock(time.Now()), prometheus.NewRegistry()
	follower, err := rates.New(rates.Options{
		URL: server.URL, Client: guard.Client(egress.Rates, rates.ClientOptions), Store: k, Metrics: metrics.NewManager(registry), Clock: clock,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- follower.Start(ctx) }()
	waits := func() { require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond) }
	answers <- func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }
	waits()
	require.Empty(t, k.all)
	clock.Step(10 * time.Minute)
	answers <- func(w http.ResponseWriter) { _, _ = io.WriteString(w, file) }
	waits()
	require.Len(t, k.all, 2)
	require.InDelta(t, day(t, "2026-03-02").Begin().Unix(), latest(t, registry), 0)
	stop()
	require.NoError(t, <-ended)
}

// latest returns the metric of the latest rate.
func latest(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "agentplatform_exchange_rates_latest_timestamp_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "there is no such metric")
	return 0
}

// A new process reports the latest stored rate.
func TestFollower_ReportsStoredRate(t *testing.T) {
	t.Parallel()
	k, registry := &kept{all: []store.Rate{{Currency: store.USD, Day: day(t, "2026-03-02"), Micros: 1}}}, prometheus.NewRegistry()
	follower, err := rates.New(rates.Options{URL: rates.DefaultURL, Store: k, Metrics: metrics.NewManager(registry), Client: &http.Client{Transport: unreachable{}}})
	require.NoError(t, err)
	require.ErrorIs(t, follower.FetchRates(t.Context()), io.ErrUnexpectedEOF)
	require.InDelta(t, day(t, "2026-03-02").Begin().Unix(), latest(t, registry), 0)
}

// unreachable is an unreachable bank.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func TestNew_ChecksURL(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"ecb", "ftp://example.com/a", "https://"} {
		_, err := rates.New(rates.Options{URL: address})
		require.ErrorContains(t, err, "--rates-url", address)
	}
	_, err := rates.New(rates.Options{URL: rates.DefaultURL})
	require.NoError(t, err)
}
