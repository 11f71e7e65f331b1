// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestWhatAConnectorRefusedIsShown: with numbers by code, and the newest requests.
func TestWhatAConnectorRefusedIsShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := "/connectors/" + w.ids["connector"] + "/rejections"
	status, body := w.call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	none := decode[RejectionReport](t, body)
	require.Equal(t, RejectionReport{Items: []Rejection{}, Counts: map[string]int64{}, Since: none.Since}, none)
	require.Regexp(t, `"since":"[^"]*T00:00:00Z"`, string(body))

	id := store.Key{ProjectID: w.projectID, ID: w.id(t, "connector")}
	require.NoError(t, w.db.RecordRejections(t.Context(), []store.Rejected{{
		Connector: id, Counts: map[string]int64{"invalid_secret": 3, "method_not_allowed": 1},
		Samples: []store.RejectionSample{
			{Code: "invalid_secret", Detail: "The secret is wrong.", Method: "POST", ContentType: "text/plain", UserAgent: "curl/8", Size: 5, RemoteAddr: "198.51.100.7"},
			{Code: "method_not_allowed", Detail: "A webhook takes GET and POST.", Method: "PUT", Size: -1},
		},
	}}))
	_, body = w.call(t, key, http.MethodGet, path, "")
	shown := decode[RejectionReport](t, body)
	require.EqualValues(t, 4, shown.Total)
	require.Equal(t, map[string]int64{"invalid_secret": 3, "method_not_allowed": 1}, shown.Counts)
	require.Len(t, shown.Items, 2)
	first, second, size := shown.Items[0], shown.Items[1], int64(5)
	require.Equal(t, Rejection{
		At: first.At, Code: "invalid_secret", Detail: "The secret is wrong.", Method: "POST", ContentType: opt("text/plain"), Size: &size,
		RemoteAddress: opt("198.51.100.7"), UserAgent: opt("curl/8"),
	}, first)
	require.Equal(t, Rejection{At: second.At, Code: "method_not_allowed", Detail: "A webhook takes GET and POST.", Method: "PUT"}, second)
}
