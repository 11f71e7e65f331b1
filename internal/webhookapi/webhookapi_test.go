// SPDX-License-Identifier: Apache-2.0

package webhookapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// The documented codes are the counted codes and the codes of accepted requests.
func TestProblems_AreCounted(t *testing.T) {
	t.Parallel()
	described := []httpserver.Code{metrics.RequestEnded} // no response has it
	for status, codes := range webhookapi.Problems {
		if status != 504 {
			described = append(described, codes...)
		}
	}
	require.ElementsMatch(t, metrics.WebhookRefusals, described)
}

func TestHops_IgnoresInvalidValues(t *testing.T) {
	t.Parallel()
	for value, hops := range map[string]int{
		"": 0, "0": 0, "1": 1, "8": 8, "9": 9, "1000": 1000, "1001": 0, "70000": 0, "-1": 0, "+1": 0, "1.5": 0, " 1": 0, "1, 2": 0, "many": 0,
	} {
		t.Run(value, func(t *testing.T) {
			require.Equal(t, hops, webhookapi.Hops(http.Header{webhookapi.HopsHeader: {value}}))
		})
	}
	require.Zero(t, webhookapi.Hops(http.Header{}))
}

func FuzzHops(f *testing.F) {
	for _, value := range []string{"", "7", "1000", "99999999999999999999"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		hops := webhookapi.Hops(http.Header{webhookapi.HopsHeader: {value}})
		if hops < 0 || hops > 1000 {
			t.Errorf("%q is %d", value, hops)
		}
	})
}
