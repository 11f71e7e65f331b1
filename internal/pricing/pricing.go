// SPDX-License-Identifier: Apache-2.0

// Package pricing contains the prices of well-known models at their vendors' services, and parses
// prices. Amounts are integers. Only the cost of a call is rounded, once.
package pricing

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Price is the price of a million tokens, in millionths of a currency.
type Price struct {
	Input, CachedInput, Output, Thinking int64
}

// decimals is the number of digits after the point.
const decimals = 6

var form = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})(\.[0-9]{1,6})?$`)

// Parse parses the price of a million tokens, a decimal number such as 1.25, in millionths.
func Parse(text string) (int64, error) {
	if !form.MatchString(text) {
		return 0, fmt.Errorf("price %q is no decimal number of at most 4 digits before the point and %d after it", text, decimals)
	}
	whole, part, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", decimals-len(part)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading price %q: %w", text, err)
	}
	return n, nil
}

// Written are the prices of a model as text. An empty price of cached input is the price of input,
// and of thinking the price of output.
type Written struct {
	Input       string `json:"input"`
	CachedInput string `json:"cached_input,omitempty"`
	Output      string `json:"output"`
	Thinking    string `json:"thinking,omitempty"`
}

// Price parses them.
func (w Written) Price() (p Price, err error) {
	for _, one := range []struct {
		text, without string
		into          *int64
	}{
		{w.Input, w.Input, &p.Input}, {w.CachedInput, w.Input, &p.CachedInput}, {w.Output, w.Output, &p.Output}, {w.Thinking, w.Output, &p.Thinking},
	} {
		text := one.text
		if text == "" {
			text = one.without
		}
		if *one.into, err = Parse(text); err != nil {
			return Price{}, err
		}
	}
	return p, nil
}

//go:embed prices.json
var file []byte

// Table are the prices of models by the hosts of services.
type Table struct {
	// Source is the source of the prices, Read the day on which they were read.
	Source string `json:"source"`
	Read   string `json:"read"`
	// Unit describes the unit of the prices.
	Unit     string                        `json:"unit"`
	Services map[string]map[string]Written `json:"services"`
}

// Known returns the table of this release, in US dollars.
func Known() (Table, error) {
	var t Table
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
		return Table{}, fmt.Errorf("reading the table of prices: %w", err)
	}
	if _, err := time.Parse(time.DateOnly, t.Read); err != nil || t.Source == "" {
		return Table{}, fmt.Errorf("the table of prices lacks the source or the day of its prices (%q)", t.Read)
	}
	return t, nil
}

// Of returns the prices of the service at an address by model name, or none for an unknown service.
func (t Table) Of(address string) map[string]Written {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return nil
	}
	return t.Services[strings.ToLower(u.Hostname())]
}
