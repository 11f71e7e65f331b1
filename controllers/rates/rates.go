// SPDX-License-Identifier: Apache-2.0

// Package rates fetches the exchange rates for the conversion of costs: the reference rates that the
// European Central Bank publishes on its working days as an XML file.
package rates

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/utils/clock"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pricing"
	"github.com/agentplatform/agentplatform/store"
)

// DefaultURL is the bank's file of the last 90 days. So an installation has no gaps after weeks of downtime.
const DefaultURL = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-hist-90d.xml"

const (
	// interval is the interval between fetches. The bank publishes rates once per working day. retry is
	// the interval after a failure.
	interval = 6 * time.Hour
	retry    = 10 * time.Minute
	// stepTimeout is the timeout of each step of a fetch.
	stepTimeout = time.Minute
)

// ClientOptions are the options of the HTTP client. The file of all days since 1999 has about 8 MB.
var ClientOptions = egress.ClientOptions{MaxResponse: 32 << 20, HeaderTimeout: 30 * time.Second}

// Options are the dependencies of a Follower.
type Options struct {
	// URL is the URL of the file: https, or http if the operator has allowed the range.
	URL    string
	Client *http.Client
	Store  store.Rates
	// Metrics counts the fetches. If nil, nothing is recorded.
	Metrics *metrics.Manager
	Clock   clock.Clock
	Logger  *slog.Logger
}

// Follower fetches exchange rates while it runs.
type Follower struct{ opts Options }

// New returns a Follower, or an error for an invalid URL.
func New(opts Options) (*Follower, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of exchange rates (--rates-url) must be an https:// or http:// URL, or empty")
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewManager(nil)
	}
	return &Follower{opts}, nil
}

// Start implements manager.Runnable: it fetches rates until ctx ends.
func (f *Follower) Start(ctx context.Context) error {
	for {
		wait := interval
		if err := f.FetchRates(ctx); err != nil && ctx.Err() == nil {
			f.opts.Logger.ErrorContext(ctx, "fetching exchange rates; costs are converted with the stored rates", "error", err, "again", retry.String())
			wait = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.opts.Clock.After(wait):
		}
	}
}

// FetchRates stores the rates of the file, and reports the latest rate, even if it is not new.
func (f *Follower) FetchRates(ctx context.Context) error {
	result := metrics.RatesRead
	err := errors.Join(withTimeout(ctx, f.storeRates), withTimeout(ctx, f.reportLatest))
	if err != nil {
		result = metrics.RatesFailed
	}
	f.opts.Metrics.RatesLooked(result)
	return err
}

// withTimeout calls step with a timeout.
func withTimeout(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return step(ctx)
}

// storeRates stores the rates of the file.
func (f *Follower) storeRates(ctx context.Context) error {
	rates, err := f.readRates(ctx)
	if err != nil {
		return err
	}
	return f.opts.Store.PutRates(ctx, rates)
}

// reportLatest reports the latest rate.
func (f *Follower) reportLatest(ctx context.Context) error {
	latest, err := f.opts.Store.LatestRate(ctx, store.USD)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err == nil:
		f.opts.Metrics.LatestRate(latest.Begin())
	}
	return err
}

func (f *Follower) readRates(ctx context.Context) ([]store.Rate, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.opts.URL, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("fetching exchange rates: %w", err)
	}
	resp, err := f.opts.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetching exchange rates: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetching exchange rates: the response is %s", resp.Status)
	}
	return Parse(resp.Body)
}

// envelope is the file: a list of days, each with a list of currencies.
type envelope struct {
	Days []struct {
		Time  string `xml:"time,attr"`
		Rates []struct {
			Currency string `xml:"currency,attr"`
			Rate     string `xml:"rate,attr"`
		} `xml:"Cube"`
	} `xml:"Cube>Cube"`
}

// Parse returns the rates of the currencies that prices use, except for the euro, from a file of one
// day, of 90 days or of all days. Any other content is an error, so that no day is silently ignored.
func Parse(r io.Reader) ([]store.Rate, error) {
	var file envelope
	if err := xml.NewDecoder(r).Decode(&file); err != nil {
		return nil, fmt.Errorf("reading the file of exchange rates: %w", err)
	}
	var out []store.Rate
	for _, d := range file.Days {
		day, err := time.Parse(time.DateOnly, d.Time)
		if err != nil {
			return nil, fmt.Errorf("reading the day of exchange rates: %w", err)
		}
		for _, of := range d.Rates {
			if store.Currency(of.Currency) != store.USD {
				continue
			}
			micros, err := pricing.Parse(of.Rate)
			if err != nil || micros == 0 {
				return nil, fmt.Errorf("reading the exchange rate of %s: %q is invalid", d.Time, of.Rate)
			}
			out = append(out, store.Rate{Currency: store.USD, Day: store.DayOf(day), Micros: micros})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the file of exchange rates has no rate of the US dollar")
	}
	return out, nil
}
