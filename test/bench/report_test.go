// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile_NearestRank(t *testing.T) {
	t.Parallel()
	var durations []time.Duration
	for i := 100; i > 0; i-- {
		durations = append(durations, time.Duration(i)*time.Millisecond)
	}
	require.InDelta(t, 51, Percentile(durations, 0.5), 0.001)
	require.InDelta(t, 100, Percentile(durations, 0.99), 0.001)
	require.InDelta(t, 100, Percentile(durations, 1), 0.001)
	require.Zero(t, Percentile(nil, 0.5))
}

func TestWrite_JSONLines(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, Write(&out, Rate("a", "requests/s", 50, 100, 0.35), Cost("b", "ms", 3, 2, 0)))
	require.Equal(t, `{"name":"a","value":50,"unit":"requests/s","yardstick":100,"ratio":0.5,"better":"higher","aim":0.35}
{"name":"b","value":3,"unit":"ms","yardstick":2,"ratio":1.5,"better":"lower"}
`, out.String())
}

func TestOver_DividesByYardstick(t *testing.T) {
	t.Parallel()
	rounds := []Figure{Rate("a", "runs/s", 30, 10, 2), Rate("a", "runs/s", 10, 10, 2), Rate("a", "runs/s", 20, 40, 2)}
	require.Equal(t, Figure{Name: "a", Value: 20, Unit: "runs/s", Yardstick: 10, Ratio: 1, Better: "higher", Aim: 2, Spread: 2.5}, Over(rounds))
	require.InDelta(t, 2, Over(rounds[:2]).Ratio, 0.001)
	require.Zero(t, Over(rounds[:1]).Spread)
}
