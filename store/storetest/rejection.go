// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// refused records n rejected requests of a connector.
func (w *world) refused(connector store.Key, code string, n int64, samples ...store.RejectionSample) {
	w.NoError(w.s.RecordRejections(w.ctx, []store.Rejected{{Connector: connector, Counts: map[string]int64{code: n}, Samples: samples}}))
}

func (w *world) rejections() store.RejectionReport {
	report, err := w.s.Rejections(w.ctx, w.connector.Key())
	w.NoError(err)
	return report
}

// takeNews returns the unreported counts.
func (w *world) takeNews() map[string]int64 {
	news, err := w.s.TakeRejectionNews(w.ctx, 10)
	w.NoError(err)
	if len(news) == 0 {
		return nil
	}
	w.Len(news, 1)
	w.Equal(w.connector.Key(), news[0].Connector)
	w.True(w.connector.Ref.SameObject(news[0].Ref))
	return news[0].Counts
}

// ageRejections makes the rejections older by days.
func (w *world) ageRejections(days int64) {
	var text string
	w.NoError(w.db.QueryRowContext(w.ctx, `SELECT document FROM rejections`).Scan(&text))
	row := struct {
		Days    map[int64]map[string]int64 `json:"days"`
		Samples []store.RejectionSample    `json:"samples"`
	}{}
	w.NoError(json.Unmarshal([]byte(text), &row))
	then := map[int64]map[string]int64{}
	for d, counts := range row.Days {
		then[d-days] = counts
	}
	for i := range row.Samples {
		row.Samples[i].At = row.Samples[i].At.AddDate(0, 0, -int(days))
	}
	row.Days = then
	raw, err := json.Marshal(row)
	w.NoError(err)
	w.updateRows(`UPDATE rejections SET document = $2, last_at = last_at - $3`, string(raw), days*(24*time.Hour).Microseconds())
}

var rejectionPromises = []promise{
	{"rejected requests are counted by code, the newest are shown", rejectionsAreCounted},
	{"a connector's row stays small", rejectionsAreBounded},
	{"concurrent records add to each other", rejectionsAdd},
	{"unknown connectors are ignored, and rows are deleted with theirs", rejectionsGo},
	{"rejections older than a week are deleted", rejectionsAreForgotten},
	{"each rejection is reported once, at most once an hour per code", rejectionsAreTold},
}

func rejectionsAreCounted(w *world) {
	report := w.rejections()
	w.Empty(report.Counts)
	w.Empty(report.Samples)
	now := w.readClock()
	sample := store.RejectionSample{
		Ago: time.Minute, Code: "invalid_secret", Detail: "The secret is wrong.", Method: "POST", ContentType: "application/json",
		UserAgent: "curl/8", Size: 17, RemoteAddr: "198.51.100.7",
	}
	w.refused(w.connector.Key(), "invalid_secret", 3, sample)
	w.refused(w.connector.Key(), "invalid_secret", 2, store.RejectionSample{Code: "invalid_secret", Size: -1})
	w.refused(w.connector.Key(), "connector_disabled", 1, store.RejectionSample{Ago: time.Hour, Code: "connector_disabled", Size: -1})
	report = w.rejections()
	w.Equal(map[string]int64{"invalid_secret": 5, "connector_disabled": 1}, report.Counts)
	w.Len(report.Samples, 3)
	w.WithinRange(report.Samples[1].At, now.Add(-time.Minute), now.Add(time.Hour))
	w.True(report.Samples[0].At.After(report.Samples[1].At))
	w.Equal("connector_disabled", report.Samples[2].Code, "newest first, in any order of recording")
	sample.At, sample.Ago = report.Samples[1].At, 0
	w.Equal(sample, report.Samples[1])
	w.Zero(report.Since.Unix() % 86400)
	w.WithinRange(report.Since, now.Add(-7*24*time.Hour), now.Add(-6*24*time.Hour+time.Hour))
}

func rejectionsAreBounded(w *world) {
	long := strings.Repeat("ä\x00", store.MaxRejectionText)
	for i := range 2 * store.MaxRejectionCodes {
		var samples []store.RejectionSample
		for range 2 * store.MaxRejectionSamples {
			samples = append(samples, store.RejectionSample{Code: long, Detail: long, Method: long, ContentType: long, UserAgent: long, RemoteAddr: long})
		}
		w.refused(w.connector.Key(), fmt.Sprint("code", i), 1, samples...)
	}
	report := w.rejections()
	w.Len(report.Counts, store.MaxRejectionCodes)
	w.Len(report.Samples, store.MaxRejectionSamples)
	for _, s := range report.Samples {
		w.LessOrEqual(len(s.Detail), store.MaxRejectionText)
		w.LessOrEqual(len(s.UserAgent), store.MaxRejectionText)
	}
	var size int
	w.NoError(w.db.QueryRowContext(w.ctx, `SELECT length(document) FROM rejections`).Scan(&size))
	w.Less(size, 128<<10)
	w.Error(w.s.RecordRejections(w.ctx, make([]store.Rejected, store.MaxRejected+1)))
}

func rejectionsAdd(w *world) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 {
				if err := w.s.RecordRejections(w.ctx, []store.Rejected{{Connector: w.connector.Key(), Counts: map[string]int64{"c": 1}}}); err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	group.Wait()
	w.Equal(map[string]int64{"c": 20}, w.rejections().Counts)
}

func rejectionsGo(w *world) {
	w.refused(store.Key{ProjectID: w.project.ID, ID: uuid.New()}, "c", 1)
	w.refused(store.Key{ProjectID: uuid.New(), ID: w.connector.ID}, "c", 1)
	w.Empty(w.rejections().Counts)
	w.Nil(w.takeNews())
	w.refused(w.connector.Key(), "c", 1)
	w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
	w.Empty(w.rejections().Counts)
	w.Nil(w.takeNews())
}

func rejectionsAreForgotten(w *world) {
	w.refused(w.connector.Key(), "old", 1, store.RejectionSample{Code: "old"})
	w.ageRejections(6)
	w.Equal(map[string]int64{"old": 1}, w.rejections().Counts)
	w.refused(w.connector.Key(), "new", 1)
	w.Equal(map[string]int64{"old": 1, "new": 1}, w.rejections().Counts)
	w.ageRejections(2)
	w.Equal(map[string]int64{"new": 1}, w.rejections().Counts)
	w.Empty(w.rejections().Samples)
	w.ageRejections(5)
	report := w.rejections()
	w.Empty(report.Counts)
	w.Empty(report.Samples)
	w.ageRejections(1)
	w.Equal(1, w.sweepExpired(10))
	w.Zero(w.sweepExpired(10))
}

func rejectionsAreTold(w *world) {
	w.Nil(w.takeNews())
	w.refused(w.connector.Key(), "a", 2)
	w.Equal(map[string]int64{"a": 2}, w.takeNews())
	w.Nil(w.takeNews())
	w.refused(w.connector.Key(), "a", 3)
	w.Nil(w.takeNews(), "within the hour")
	w.refused(w.connector.Key(), "b", 1)
	w.Equal(map[string]int64{"b": 1}, w.takeNews())
	w.NotEmpty(w.rejections().Counts)
	// An hour later, as stored in the row.
	var text string
	w.NoError(w.db.QueryRowContext(w.ctx, `SELECT document FROM rejections`).Scan(&text))
	w.Contains(text, `"told_at":"2`)
	w.updateRows(`UPDATE rejections SET document = $2, news_at = 1`, strings.ReplaceAll(text, `"told_at":"2`, `"told_at":"1`))
	w.Equal(map[string]int64{"a": 3}, w.takeNews())
	w.Nil(w.takeNews())
}
