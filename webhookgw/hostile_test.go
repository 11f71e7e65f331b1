// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestWebhook_RejectsBeforeBody: a client that announces a body and sends none gets its response,
// and its connection is closed.
func TestWebhook_RejectsBeforeBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	for name, request := range map[string]struct {
		path, secret string
		status       int
	}{
		"unknown": {b.hook("00000000-0000-0000-0000-000000000000"), secret, http.StatusNotFound},
		"health":  {"/healthz", "", http.StatusOK},
		"secret":  {b.hook(c.ID.String()), "wrong", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", b.gateway.PublicAddr())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"+
				"X-Service-Secret: %s\r\nContent-Length: 1000\r\n\r\n", request.path, request.secret)
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, request.status, resp.StatusCode)
			require.True(t, resp.Close, "otherwise the rest of the body would be read as a request")
		})
	}
}

// TestWebhook_LargeBodyShare: a project with slow large bodies has a limited number of slots for
// them, and keeps its capacity for small ones.
func TestWebhook_LargeBodyShare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	large := `{"a":"` + strings.Repeat("x", 200<<10) + `"}`
	post := func(body string) reply { return b.post(b.gateway, c.ID.String(), body, nil) }
	require.Equal(t, http.StatusOK, post(large).status)
	var trickles []net.Conn
	answers := make(chan int, 17)
	for range cap(answers) { // one more than a project's share of the slots
		conn, err := net.Dial("tcp", b.gateway.PublicAddr())
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"+
			"X-Service-Secret: %s\r\nContent-Length: %d\r\n\r\n%s", b.hook(c.ID.String()), secret, len(large), large[:100<<10])
		require.NoError(t, err)
		trickles = append(trickles, conn)
		go func() {
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				answers <- resp.StatusCode
				_ = resp.Body.Close() // the connection is closed below
			}
		}()
	}
	require.Equal(t, http.StatusTooManyRequests, <-answers)
	refused := post(large)
	require.Equal(t, "too_many_large_bodies", refused.body["code"])
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, post(`{}`).status)
	for _, conn := range trickles {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return post(large).status == http.StatusOK }, 30*time.Second, 10*time.Millisecond)
}

func TestIdempotencyKey_InvalidText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	for _, header := range []string{"Idempotency-Key", "Webhook-Id"} {
		for _, key := range []string{"\xff\xfe", "naïve", "tab\tbed", strings.Repeat("k", 256)} {
			got := b.post(b.gateway, c.ID.String(), `{}`, func(r *http.Request) { r.Header.Set(header, key) })
			require.Equal(t, http.StatusBadRequest, got.status, "%s: %q", header, key)
			require.Contains(t, strings.ToLower(got.body["detail"].(string)), strings.ToLower(header))
		}
	}
	require.Equal(t, http.StatusOK, b.post(b.gateway, c.ID.String(), `{}`, nil).status)
}

// TestIdempotencyKey_LargeBody: a duplicate gets the same response, another body with the key is
// rejected, and neither is stored again.
func TestIdempotencyKey_LargeBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	puts := &countedBlobs{Store: b.store}
	gateway := b.serve(puts)
	c := b.connector("inbound", nil, "hello")
	large := func(filling string) string { return `{"a":"` + strings.Repeat(filling, 200<<10) + `"}` }
	keyed := func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }
	first := b.post(gateway, c.ID.String(), large("x"), keyed)
	require.Equal(t, http.StatusOK, first.status)
	require.Equal(t, first.body, b.post(gateway, c.ID.String(), large("x"), keyed).body)
	require.Equal(t, "idempotency_key_reused", b.post(gateway, c.ID.String(), large("y"), keyed).body["code"])
	require.EqualValues(t, 1, puts.n.Load())
}

// countedBlobs counts the stored blobs.
type countedBlobs struct {
	store.Store
	n atomic.Int64
}

func (c *countedBlobs) PutBlob(ctx context.Context, key store.Key, r io.Reader) (int64, error) {
	c.n.Add(1)
	return c.Store.PutBlob(ctx, key, r)
}
