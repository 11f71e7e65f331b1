// SPDX-License-Identifier: Apache-2.0

// Package rates looks for the exchange rates by which costs are converted: the reference rates that
// the European Central Bank tells on its working days, as a file of XML.
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

// DefaultURL is the bank's file of the last 90 days: an installation that was away for weeks has
// none missing.
const DefaultURL = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-hist-90d.xml"

const (
	// interval is how often is looked: the bank tells new ones once a working day. retry is when
	// again after a failure.
	interval = 6 * time.Hour
	retry    = 10 * time.Minute
	// patience is how long each of the steps of a look takes at most.
	patience = time.Minute
)

// ClientOptions are those of the client: the file of all days since 1999 has some 8 MB.
var ClientOptions = egress.ClientOptions{MaxResponse: 32 << 20, HeaderTimeout: 30 * time.Second}

// Options are what a Follower depends on.
type Options struct {
	// URL is that of the file: https, or http where the operator has allowed the range.
	URL    string
	Client *http.Client
	Store  store.Rates
	// Metrics count the looks; nil counts nowhere.
	Metrics *metrics.Manager
	Clock   clock.Clock
	Logger  *slog.Logger
}

// Follower looks for exchange rates while it runs.
type Follower struct{ opts Options }

// New makes a Follower; an error says what is wrong with the URL.
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

// Start implements manager.Runnable: it looks until ctx ends.
func (f *Follower) Start(ctx context.Context) error {
	for {
		wait := interval
		if err := f.Look(ctx); err != nil && ctx.Err() == nil {
			f.opts.Logger.ErrorContext(ctx, "looking for exchange rates; costs are converted by those that are there", "error", err, "again", retry.String())
			wait = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.opts.Clock.After(wait):
		}
	}
}

// Look keeps the rates that the file has, and says which is the last one, also where that is an
// older one.
func (f *Follower) Look(ctx context.Context) error {
	result := metrics.RatesRead
	err := errors.Join(within(ctx, f.keep), within(ctx, f.last))
	if err != nil {
		result = metrics.RatesFailed
	}
	f.opts.Metrics.RatesLooked(result)
	return err
}

// within gives a step its time.
func within(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return step(ctx)
}

// keep stores the rates that the file has.
func (f *Follower) keep(ctx context.Context) error {
	rates, err := f.read(ctx)
	if err != nil {
		return err
	}
	return f.opts.Store.PutRates(ctx, rates)
}

// last says which rate is the last one.
func (f *Follower) last(ctx context.Context) error {
	latest, err := f.opts.Store.LatestRate(ctx, store.USD)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err == nil:
		f.opts.Metrics.LatestRate(latest.Begin())
	}
	return err
}

func (f *Follower) read(ctx context.Context) ([]store.Rate, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.opts.URL, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for exchange rates: %w", err)
	}
	resp, err := f.opts.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for exchange rates: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for exchange rates: the answer is %s", resp.Status)
	}
	return Parse(resp.Body)
}

// envelope is the file: a list of days, each with its list of currencies.
type envelope struct {
	Days []struct {
		Time  string `xml:"time,attr"`
		Rates []struct {
			Currency string `xml:"currency,attr"`
			Rate     string `xml:"rate,attr"`
		} `xml:"Cube"`
	} `xml:"Cube>Cube"`
}

// Parse reads the rates of the currencies that prices are in, but for the euro's: of the file of a
// day, of 90 days or of all. What it does not have in that form is an error, so that no day is
// passed over in silence.
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
				return nil, fmt.Errorf("reading the exchange rate of %s: %q is none", d.Time, of.Rate)
			}
			out = append(out, store.Rate{Currency: store.USD, Day: store.DayOf(day), Micros: micros})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the file of exchange rates has none of the US dollar")
	}
	return out, nil
}
