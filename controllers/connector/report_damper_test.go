// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A Connector reports a problem at once, recovery after ten minutes without problems, and another
// reason ten minutes after the previous one.
func TestReportDamper_DelaysChangesOfState(t *testing.T) {
	t.Parallel()
	var (
		well     = store.Destination{}
		refused  = store.Destination{Rejected: 1, RejectedReason: "401"}
		unknown  = store.Destination{Rejected: 2, RejectedReason: "404"}
		failing  = store.Destination{Failures: store.BreakAfter}
		paused   = store.Destination{PausedGeneration: 2, PausedReason: "410"}
		resumed  = store.Destination{PausedGeneration: 1, PausedReason: "410"}
		both     = store.Destination{PausedGeneration: 1, PausedReason: "410", Failures: store.BreakAfter}
		told401  = trouble{state: store.DestinationRejecting, reason: "401"}
		told404  = trouble{state: store.DestinationRejecting, reason: "404"}
		toldWait = trouble{state: store.DestinationPaused, reason: "410", paused: 2}
		toldFail = trouble{state: store.DestinationFailing}
	)
	type step struct {
		after   time.Duration
		seen    store.Destination
		want    trouble
		changed bool
	}
	for name, steps := range map[string][]step{
		"rejected again after recovery": {
			{0, refused, told401, true}, {0, refused, told401, false}, {time.Minute, well, told401, false},
			{dampingTime, well, trouble{}, true}, {time.Second, refused, told401, true},
		},
		"intermittent failures": {
			{0, failing, toldFail, true}, {30 * time.Second, well, toldFail, false}, {dampingTime - time.Minute, failing, toldFail, false},
			{dampingTime - time.Second, well, toldFail, false}, {time.Second, well, trouble{}, true},
		},
		"another status of rejections": {{0, refused, told401, true}, {time.Minute, unknown, told401, false}, {dampingTime, unknown, told404, true}},
		"failure after a rejection":    {{0, refused, told401, true}, {0, failing, toldFail, true}, {time.Minute, refused, toldFail, false}, {dampingTime, refused, told401, true}},
		"paused and resumed":           {{0, refused, told401, true}, {0, paused, toldWait, true}, {0, well, trouble{}, true}},
		"no problem":                   {{0, well, trouble{}, false}},
		"pause of an earlier generation": {
			{0, resumed, trouble{}, false}, {0, both, toldFail, true}, {dampingTime, resumed, trouble{}, true}, {0, resumed, trouble{}, false},
		},
		"paused, then changed spec": {{0, paused, toldWait, true}, {0, resumed, trouble{}, true}},
		"rejected, then resolved":   {{0, refused, told401, true}, {dampingTime, well, trouble{}, true}, {0, well, trouble{}, false}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_000_000, 0)
			c, key := &ReportDamper{Now: func() time.Time { return now }}, store.Key{ProjectID: uuid.New(), ID: uuid.New()}
			for i, s := range steps {
				now = now.Add(s.after)
				s.seen.Connector = key
				is, changed := c.stateToReport(store.ObjectRef{Name: "results", Generation: 2}, s.seen)
				require.Equal(t, s.want, is, "%s, step %d", name, i)
				require.Equal(t, s.changed, changed, "%s, step %d", name, i)
				require.Equal(t, is != trouble{}, len(c.otherConnectors(nil)) == 1, "%s, step %d: healthy connectors are forgotten", name, i)
			}
		})
	}
}
