// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// refusalInterval is the least time between two lines about one address.
	refusalInterval = time.Minute
	// maxRefused is how many addresses are told apart; what comes from others
	// meanwhile is counted together.
	maxRefused = 1024
)

// Refusals counts requests that were refused without knowing who sent them, and
// logs them: each address at once, then at most once a minute with the number of
// those that came meanwhile. An IPv6 network of 64 bits is one address.
type Refusals struct {
	message string
	logger  *slog.Logger
	now     func() time.Time

	mutex   sync.Mutex
	refused map[netip.Prefix]*refused
	order   []netip.Prefix // of refused, by since
}

// refused is what came from one address since its last line.
type refused struct {
	since  time.Time
	counts map[string]int
}

// NewRefusals logs with this message. A nil logger means slog's default, a nil
// clock time.Now.
func NewRefusals(message string, logger *slog.Logger, now func() time.Time) *Refusals {
	if logger == nil {
		logger = slog.Default()
	}
	if now == nil {
		now = time.Now
	}
	return &Refusals{message: message, logger: logger, now: now, refused: map[netip.Prefix]*refused{}}
}

// Add counts one refusal; the reason is a constant such as a problem's code.
func (r *Refusals) Add(address netip.Addr, reason string) {
	for _, line := range r.add(network(address), reason) {
		r.logger.Warn(r.message, line...)
	}
}

// add returns the lines that are due.
func (r *Refusals) add(from netip.Prefix, reason string) (lines [][]any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.now()
	lines = r.due(now)
	if _, known := r.refused[from]; !known && len(r.refused) >= maxRefused {
		from = netip.Prefix{} // all others
	}
	entry, known := r.refused[from]
	if known {
		entry.counts[reason]++
		return lines
	}
	r.refused[from] = &refused{since: now, counts: map[string]int{}}
	r.order = append(r.order, from)
	return append(lines, line(from, map[string]int{reason: 1}))
}

// due forgets the addresses from which nothing came for a while, and returns the
// lines about the others.
func (r *Refusals) due(now time.Time) (lines [][]any) {
	for len(r.order) > 0 {
		first := r.order[0]
		entry := r.refused[first]
		if now.Sub(entry.since) < refusalInterval {
			break
		}
		r.order = r.order[1:]
		if len(entry.counts) == 0 {
			delete(r.refused, first)
			continue
		}
		lines = append(lines, line(first, entry.counts))
		r.refused[first] = &refused{since: now, counts: map[string]int{}}
		r.order = append(r.order, first)
	}
	return lines
}

// line is what is logged about an address.
func line(from netip.Prefix, counts map[string]int) []any {
	total, reasons := 0, []any{}
	for reason, n := range counts {
		total += n
		reasons = append(reasons, slog.Int(reason, n))
	}
	slices.SortFunc(reasons, func(a, b any) int { return cmp.Compare(a.(slog.Attr).Key, b.(slog.Attr).Key) })
	name := "others"
	if from.IsValid() {
		name = from.Addr().String()
	}
	return []any{"address", name, "count", total, slog.Group("reasons", reasons...)}
}

// network is the address, or its network of 64 bits.
func network(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
