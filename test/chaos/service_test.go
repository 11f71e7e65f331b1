// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// service is a model service that accepts requests and never responds.
type service struct {
	*httptest.Server
	// hanging are the requests that wait.
	hanging atomic.Int64
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{}
	over := make(chan struct{})
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or its end would not be noticed
		s.hanging.Add(1)
		defer s.hanging.Add(-1)
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	t.Cleanup(func() {
		close(over)
		s.Close()
	})
	return s
}
