// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

func TestListRejections_ShowsCountsAndSamples(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := "/connectors/" + w.IDs["connector"] + "/rejections"
	status, body := w.Call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	none := apiservertest.Decode[connectors.RejectionReport](t, body)
	require.Equal(t, connectors.RejectionReport{Items: []connectors.Rejection{}, Counts: map[string]int64{}, Since: none.Since}, none)
	require.Regexp(t, `"since":"[^"]*T00:00:00Z"`, string(body))

	id := store.Key{ProjectID: w.ProjectID, ID: w.ObjectID(t, "connector")}
	require.NoError(t, w.Store.RecordRejections(t.Context(), []store.Rejected{{
		Connector: id, Counts: map[string]int64{"invalid_secret": 3, "method_not_allowed": 1},
		Samples: []store.RejectionSample{
			{Code: "invalid_secret", Detail: "The secret is wrong.", Method: "POST", ContentType: "text/plain", UserAgent: "curl/8", Size: 5, RemoteAddr: "198.51.100.7"},
			{Code: "method_not_allowed", Detail: "A webhook takes GET and POST.", Method: "PUT", Size: -1},
		},
	}}))
	_, body = w.Call(t, key, http.MethodGet, path, "")
	shown := apiservertest.Decode[connectors.RejectionReport](t, body)
	require.EqualValues(t, 4, shown.Total)
	require.Equal(t, map[string]int64{"invalid_secret": 3, "method_not_allowed": 1}, shown.Counts)
	require.Len(t, shown.Items, 2)
	first, second, size := shown.Items[0], shown.Items[1], int64(5)
	require.Equal(t, connectors.Rejection{
		At: first.At, Code: "invalid_secret", Detail: "The secret is wrong.", Method: "POST", ContentType: rest.Optional("text/plain"), Size: &size,
		RemoteAddress: rest.Optional("198.51.100.7"), UserAgent: rest.Optional("curl/8"),
	}, first)
	require.Equal(t, connectors.Rejection{At: second.At, Code: "method_not_allowed", Detail: "A webhook takes GET and POST.", Method: "PUT"}, second)
}
