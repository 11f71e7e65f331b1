// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func TestJudge_Outcomes(t *testing.T) {
	t.Parallel()
	two := []time.Duration{0, 10 * time.Second}
	for name, c := range map[string]struct {
		saw     attemptResult
		number  int
		outcome store.DeliveryOutcome
		down    bool
		wait    time.Duration
		reason  string
	}{
		"2xx":                       {saw: attemptResult{status: 204}, number: 1, outcome: store.DeliveryDone},
		"5xx":                       {saw: attemptResult{status: 500, class: classStatus}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"the last 5xx":              {saw: attemptResult{status: 500, class: classStatus, message: "no"}, number: 2, outcome: store.DeliveryFailed, down: true, reason: "given up after 2 attempts: no"},
		"beyond the schedule":       {saw: attemptResult{status: 500, class: classStatus, message: "no"}, number: 9, outcome: store.DeliveryFailed, down: true, reason: "given up after 9 attempts: no"},
		"a redirect":                {saw: attemptResult{status: 302, class: classRedirect}, number: 1, outcome: store.DeliveryRetry, wait: 10 * time.Second},
		"400":                       {saw: attemptResult{status: 400, class: classStatus, message: "no"}, number: 1, outcome: store.DeliveryFailed, reason: "no"},
		"410":                       {saw: attemptResult{status: 410, class: classStatus, message: "gone"}, number: 1, outcome: store.DeliveryGone, reason: "gone"},
		"408":                       {saw: attemptResult{status: 408, class: classStatus}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"425":                       {saw: attemptResult{status: 425, class: classStatus}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"429":                       {saw: attemptResult{status: 429, class: classStatus, retryAfter: "60"}, number: 1, outcome: store.DeliveryRetry, down: true, wait: time.Minute},
		"Retry-After as a date":     {saw: attemptResult{status: 503, class: classStatus, retryAfter: "Tue, 01 Jan 2030 12:05:00 GMT"}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 5 * time.Minute},
		"Retry-After of a year":     {saw: attemptResult{status: 503, class: classStatus, retryAfter: "31536000"}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 24 * time.Hour},
		"Retry-After in the past":   {saw: attemptResult{status: 503, class: classStatus, retryAfter: "Tue, 01 Jan 2019 12:05:00 GMT"}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"invalid Retry-After":       {saw: attemptResult{status: 503, class: classStatus, retryAfter: "soon"}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"an earlier Retry-After":    {saw: attemptResult{status: 503, class: classStatus, retryAfter: "1"}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"no answer":                 {saw: attemptResult{class: classTimeout}, number: 1, outcome: store.DeliveryRetry, down: true, wait: 10 * time.Second},
		"a forbidden address":       {saw: attemptResult{class: classForbidden, message: "no"}, number: 1, outcome: store.DeliveryFailed, reason: "no"},
		"a wrong connector":         {saw: attemptResult{class: classConnector, message: "no"}, number: 1, outcome: store.DeliveryFailed, reason: "no"},
		"platform error":            {saw: attemptResult{class: classPlatform}, number: 1, outcome: store.DeliveryRetry, wait: platformPause},
		"platform error at the end": {saw: attemptResult{class: classPlatform}, number: 9, outcome: store.DeliveryRetry, wait: platformPause},
		"nothing to send":           {saw: attemptResult{class: classErased, message: "erased"}, number: 1, outcome: store.DeliveryCancelled, reason: "erased"},
	} {
		t.Run(name, func(t *testing.T) {
			a := decideAttempt(c.saw, c.number, two, noon, 0.5)
			require.Equal(t, c.outcome, a.Outcome)
			require.Equal(t, c.down, a.Down)
			require.Equal(t, c.wait, a.Wait)
			require.Equal(t, c.saw.class == classPlatform, a.Free)
			if a.Outcome != store.DeliveryRetry {
				require.Equal(t, c.reason, a.Reason)
			}
		})
	}
	for random, wait := range map[float64]time.Duration{0: 8 * time.Second, 1: 12 * time.Second} {
		t.Run(fmt.Sprint(random), func(t *testing.T) {
			require.Equal(t, wait, decideAttempt(attemptResult{status: 500, class: classStatus}, 1, two, noon, random).Wait)
		})
	}
}

// TestJudge_ClassesAreMetricValues: each constant class… is a value of the metric's label.
func TestJudge_ClassesAreMetricValues(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "verdict.go", nil, 0)
	require.NoError(t, err)
	var classes []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "class") {
			class, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			classes = append(classes, class)
		}
		return true
	})
	require.ElementsMatch(t, metrics.DeliveryErrors, classes)
}
