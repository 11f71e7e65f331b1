// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// running is an earlier request with open runs.
type running struct{ past }

func (*running) Ended(context.Context, []store.Key) ([]store.Key, error) { return nil, nil }

// TestReplayed_HeaderMarksDuplicates: each response to a duplicate has the header, except one that
// does not answer the request.
func TestReplayed_HeaderMarksDuplicates(t *testing.T) {
	t.Parallel()
	ended := func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
		return context.WithDeadline(ctx, time.Unix(0, 0))
	}
	repeated := func() past { return past{keeper: keeper{mode: "sync"}, runs: someRuns(1)} }
	done, unread := repeated(), repeated()
	unread.filesErr = errors.New("away")
	for name, c := range map[string]struct {
		store  Store
		header []string
		status int
		want   string
	}{
		"result":                           {&done, nil, http.StatusOK, "true"},
		"stream":                           {&done, []string{"Accept", typeEvents}, http.StatusOK, "true"},
		"nobody waits":                     {&done, []string{"Prefer", "respond-async"}, http.StatusAccepted, "true"},
		"timeout":                          {&running{repeated()}, nil, http.StatusGatewayTimeout, "true"},
		"store unavailable":                {&unread, nil, http.StatusServiceUnavailable, ""},
		"store unavailable, respond-async": {&unread, []string{"Prefer", "respond-async"}, http.StatusServiceUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := servingStore(t, c.store)
			if c.status == http.StatusGatewayTimeout {
				h.opts.WithTimeout = ended
			}
			answer, _ := post(t, h, strings.NewReader(`{}`), c.header...)
			require.Equal(t, c.status, answer.Code)
			require.Equal(t, c.want, answer.Header().Get(webhookapi.ReplayedHeader))
		})
	}
}
