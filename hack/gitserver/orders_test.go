// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tutorial and the examples look orders up.
func TestServeOrders_ReturnsKnownOrders(t *testing.T) {
	t.Parallel()
	routes := http.NewServeMux()
	serveOrders(routes)
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/orders/4711":          {http.StatusOK, `{"order":"4711","state":"shipped","carrier":"DHL","shipment":{"carrier":"DHL","eta":"tomorrow"}}` + "\n"},
		"/orders/4712/payments": {http.StatusOK, `{"payments":[{"amount":35,"state":"paid"}]}` + "\n"},
		"/orders/1":             {http.StatusNotFound, "there is no such order\n"},
	} {
		t.Run(path, func(t *testing.T) {
			got := httptest.NewRecorder()
			routes.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			require.Equal(t, want.status, got.Code)
			require.Equal(t, want.body, got.Body.String())
		})
	}
}
