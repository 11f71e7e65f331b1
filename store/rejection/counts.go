// SPDX-License-Identifier: Apache-2.0

package rejection

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// rejectionCounts is the document of a row of rejections. The numbers of days, codes and samples limit its
// size.
type rejectionCounts struct {
	// Days are the counts by code, by day since 1970 in decimal.
	Days map[string]map[string]int64 `json:"days,omitempty"`
	// Samples are the newest samples, newest first.
	Samples []store.RejectionSample `json:"samples,omitempty"`
	// News are the unreported counts by code, with the time of the last report.
	News map[string]unreportedCount `json:"news,omitempty"`
}

// unreportedCount is the number of unreported rejections of a code, with the time of the last report.
type unreportedCount struct {
	Count  int64      `json:"count,omitempty"`
	ToldAt *time.Time `json:"told_at,omitempty"`
}

func unixDay(t time.Time) int64 { return t.Unix() / int64(sqldb.Day/time.Second) }

// addRejections adds rejections of a connector.
func (r *rejectionCounts) addRejections(more store.Rejected, now time.Time) {
	r.deleteOld(now)
	today := strconv.FormatInt(unixDay(now), 10)
	if r.Days == nil {
		r.Days = map[string]map[string]int64{}
	}
	if r.Days[today] == nil {
		r.Days[today] = map[string]int64{}
	}
	if r.News == nil {
		r.News = map[string]unreportedCount{}
	}
	for code, n := range more.Counts {
		code = sqldb.TruncateText(code, store.MaxRejectionText)
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
			*text = sqldb.TruncateText(*text, store.MaxRejectionText)
		}
		r.Samples = append(r.Samples, s)
	}
	slices.SortStableFunc(r.Samples, func(a, b store.RejectionSample) int { return b.At.Compare(a.At) })
	r.Samples = r.Samples[:min(len(r.Samples), store.MaxRejectionSamples)]
}

// deleteOld deletes counts and samples that are too old.
func (r *rejectionCounts) deleteOld(now time.Time) {
	first := unixDay(now) - store.RejectionDays + 1
	maps.DeleteFunc(r.Days, func(text string, _ map[string]int64) bool {
		d, err := strconv.ParseInt(text, 10, 64)
		return err != nil || d < first
	})
	r.Samples = slices.DeleteFunc(r.Samples, func(s store.RejectionSample) bool { return unixDay(s.At) < first })
	maps.DeleteFunc(r.News, func(_ string, n unreportedCount) bool { return n.Count == 0 && !n.nextReport().After(now) })
}

// reportAt returns the report at a time.
func (r *rejectionCounts) reportAt(now time.Time) store.RejectionReport {
	r.deleteOld(now)
	out := store.RejectionReport{
		Since: time.Unix((unixDay(now)-store.RejectionDays+1)*int64(sqldb.Day/time.Second), 0).UTC(), Counts: map[string]int64{}, Samples: r.Samples,
	}
	for _, counts := range r.Days {
		for code, n := range counts {
			out.Counts[code] += n
		}
	}
	return out
}

// nextReport returns when the next report is allowed: the zero time if there was none yet.
func (n unreportedCount) nextReport() time.Time {
	if n.ToldAt == nil {
		return time.Time{}
	}
	return n.ToldAt.Add(store.RejectionNewsInterval)
}

// reportDue returns when there is something to report; nil if there is nothing.
func (r *rejectionCounts) reportDue() (first *time.Time) {
	for _, n := range r.News {
		due := time.Unix(0, 0) // at once
		if n.ToldAt != nil {
			due = n.nextReport()
		}
		if n.Count > 0 && (first == nil || due.Before(*first)) {
			first = &due
		}
	}
	return first
}

// takeUnreported returns the counts to report, and marks them as reported.
func (r *rejectionCounts) takeUnreported(now time.Time) map[string]int64 {
	out := map[string]int64{}
	for code, n := range r.News {
		if n.Count > 0 && !n.nextReport().After(now) {
			out[code] = n.Count
			r.News[code] = unreportedCount{ToldAt: &now}
		}
	}
	return out
}
