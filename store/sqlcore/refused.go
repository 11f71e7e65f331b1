// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

const day = 24 * time.Hour

// dayUS are its microseconds, in a statement.
var dayUS = strconv.FormatInt(day.Microseconds(), 10)

// refused is the document of a row of rejections. Its size is bounded by the number of days,
// codes and samples.
type refused struct {
	// Days are the counts by code of the days since 1970, in decimal.
	Days map[string]map[string]int64 `json:"days,omitempty"`
	// Samples are the newest, newest first.
	Samples []store.RejectionSample `json:"samples,omitempty"`
	// News are what nobody was told of by code, and when somebody was last.
	News map[string]untold `json:"news,omitempty"`
}

// untold is how often a code was given since somebody was told of it, and when that was.
type untold struct {
	Count  int64      `json:"count,omitempty"`
	ToldAt *time.Time `json:"told_at,omitempty"`
}

func dayOf(t time.Time) int64 { return t.Unix() / int64(day/time.Second) }

// add adds what a connector refused.
func (r *refused) add(more store.Rejected, now time.Time) {
	r.forget(now)
	today := strconv.FormatInt(dayOf(now), 10)
	if r.Days == nil {
		r.Days = map[string]map[string]int64{}
	}
	if r.Days[today] == nil {
		r.Days[today] = map[string]int64{}
	}
	if r.News == nil {
		r.News = map[string]untold{}
	}
	for code, n := range more.Counts {
		code = cut(code, store.MaxRejectionText)
		if _, known := r.Days[today][code]; known || len(r.Days[today]) < store.MaxRejectionCodes {
			r.Days[today][code] += n
		}
		if before, known := r.News[code]; known || len(r.News) < store.MaxRejectionCodes {
			before.Count += n
			r.News[code] = before
		}
	}
	for _, s := range more.Samples[:min(len(more.Samples), store.MaxRejectionSamples)] {
		s.At = now.Add(-max(s.Ago, 0)).UTC()
		for _, text := range []*string{&s.Code, &s.Detail, &s.Method, &s.ContentType, &s.UserAgent, &s.RemoteAddr} {
			*text = cut(*text, store.MaxRejectionText)
		}
		r.Samples = append(r.Samples, s)
	}
	slices.SortStableFunc(r.Samples, func(a, b store.RejectionSample) int { return b.At.Compare(a.At) })
	r.Samples = r.Samples[:min(len(r.Samples), store.MaxRejectionSamples)]
}

// forget drops what is too old to be told.
func (r *refused) forget(now time.Time) {
	first := dayOf(now) - store.RejectionDays + 1
	maps.DeleteFunc(r.Days, func(text string, _ map[string]int64) bool {
		d, err := strconv.ParseInt(text, 10, 64)
		return err != nil || d < first
	})
	r.Samples = slices.DeleteFunc(r.Samples, func(s store.RejectionSample) bool { return dayOf(s.At) < first })
	maps.DeleteFunc(r.News, func(_ string, n untold) bool { return n.Count == 0 && !n.dueAt().After(now) })
}

// report is what is known at a time.
func (r *refused) report(now time.Time) store.RejectionReport {
	r.forget(now)
	out := store.RejectionReport{
		Since: time.Unix((dayOf(now)-store.RejectionDays+1)*int64(day/time.Second), 0).UTC(), Counts: map[string]int64{}, Samples: r.Samples,
	}
	for _, counts := range r.Days {
		for code, n := range counts {
			out.Counts[code] += n
		}
	}
	return out
}

// dueAt is when somebody may be told: the zero time where nobody was yet.
func (n untold) dueAt() time.Time {
	if n.ToldAt == nil {
		return time.Time{}
	}
	return n.ToldAt.Add(store.RejectionNewsInterval)
}

// newsAt is when there is something to be told; nil while there is nothing.
func (r *refused) newsAt() (first *time.Time) {
	for _, n := range r.News {
		due := time.Unix(0, 0) // at once
		if n.ToldAt != nil {
			due = n.dueAt()
		}
		if n.Count > 0 && (first == nil || due.Before(*first)) {
			first = &due
		}
	}
	return first
}

// take returns the numbers that are to be told, and notes that they were.
func (r *refused) take(now time.Time) map[string]int64 {
	out := map[string]int64{}
	for code, n := range r.News {
		if n.Count > 0 && !n.dueAt().After(now) {
			out[code] = n.Count
			r.News[code] = untold{ToldAt: &now}
		}
	}
	return out
}
