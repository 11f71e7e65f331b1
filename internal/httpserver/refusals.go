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
	// refusalInterval is the minimum time between two log lines about an address.
	refusalInterval = time.Minute
	// maxRefused limits the separate addresses. Further ones are counted together.
	maxRefused = 1024
)

// Refusals counts rejected requests of unknown senders and logs them by address: the first one
// immediately, then at most one line a minute with a count. An IPv6 network of 64 bits counts as
// one address.
type Refusals struct {
	message string
	logger  *slog.Logger
	now     func() time.Time

	mutex   sync.Mutex
	refused map[netip.Prefix]*refused
	order   []netip.Prefix // addresses of refused, by since
}

// refused counts the requests of an address since its last line.
type refused struct {
	since  time.Time
	counts map[string]int
}

// NewRefusals logs with this message. A nil logger means slog's default. A nil clock means
// time.Now.
func NewRefusals(message string, logger *slog.Logger, now func() time.Time) *Refusals {
	if logger == nil {
		logger = slog.Default()
	}
	if now == nil {
		now = time.Now
	}
	return &Refusals{message: message, logger: logger, now: now, refused: map[netip.Prefix]*refused{}}
}

// Add counts one rejection. The reason is a constant such as a problem's code.
func (r *Refusals) Add(address netip.Addr, reason string) {
	for _, line := range r.addRefusal(network(address), reason) {
		r.logger.Warn(r.message, line...)
	}
}

// addRefusal returns the lines that are due.
func (r *Refusals) addRefusal(from netip.Prefix, reason string) (lines [][]any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.now()
	lines = r.dueLines(now)
	if _, known := r.refused[from]; !known && len(r.refused) >= maxRefused {
		from = netip.Prefix{} // all other addresses
	}
	entry, known := r.refused[from]
	if known {
		entry.counts[reason]++
		return lines
	}
	r.refused[from] = &refused{since: now, counts: map[string]int{}}
	r.order = append(r.order, from)
	return append(lines, refusalLine(from, map[string]int{reason: 1}))
}

// dueLines drops inactive addresses and returns the lines about the others.
func (r *Refusals) dueLines(now time.Time) (lines [][]any) {
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
		lines = append(lines, refusalLine(first, entry.counts))
		r.refused[first] = &refused{since: now, counts: map[string]int{}}
		r.order = append(r.order, first)
	}
	return lines
}

// refusalLine returns the log attributes of an address.
func refusalLine(from netip.Prefix, counts map[string]int) []any {
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

// network returns the address, or its network of 64 bits.
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
