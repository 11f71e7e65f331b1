// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
)

var deliveredRuns = flag.Int("delivered.runs", 20_000, "ended runs whose results a round of BenchmarkDeliveries delivers")

const (
	// senders is the number of connections of the yardstick. It equals the platform's number of connections to one connector.
	senders = 64
	// beside is the number of connectors in addition to the hanging connector.
	beside = 1000
)

// BenchmarkDeliveries signs, sends and records the results of ended runs to a server on the same machine. The yardstick is a
// bare client that signs and sends the same bytes. A second figure compares deliveries to 1,000 connectors, including one whose
// destination hangs, with the same load without the hanging destination.
func BenchmarkDeliveries(b *testing.B) {
	for name, open := range databases {
		b.Run(name, func(b *testing.B) {
			alternate(b, func() (figures []Figure) {
				b.Run("round", func(b *testing.B) { // closes the round's resources at its end
					bare := paceOfClient(b)
					figures = append(figures, Rate("deliveries/"+name, "deliveries/s", paceOfDeliveries(b, open(b), 1, 0, *deliveredRuns), bare, aims["deliveries"]))
				})
				return figures
			})
		})
		b.Run(name+"/hanging", func(b *testing.B) {
			alternate(b, func() (figures []Figure) {
				b.Run("round", func(b *testing.B) {
					n := max(*deliveredRuns/beside, 2)
					without := paceOfDeliveries(b, open(b), beside, 0, n)
					figures = append(figures, Rate("deliveries/"+name+"/one of 1000 hangs", "deliveries/s", paceOfDeliveries(b, open(b), beside, 1, n), without, aims["deliveries/hanging"]))
				})
				return figures
			})
		})
	}
}

// receiver starts a server that counts its requests. It never responds to requests to /hangs.
func receiver(tb testing.TB) (url string, arrived *atomic.Int64) {
	tb.Helper()
	arrived = &atomic.Int64{}
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // of a client that is measured
		if r.URL.Path == "/hangs" {
			<-over
			return
		}
		arrived.Add(1)
	}))
	tb.Cleanup(func() { close(over); server.Close() })
	return server.URL, arrived
}

// paceOfClient returns the number of requests that a client signs and sends per second.
func paceOfClient(tb testing.TB) float64 {
	tb.Helper()
	url, _ := receiver(tb)
	transport := &http.Transport{MaxIdleConnsPerHost: senders}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body := bytes.Repeat([]byte("x"), 400)
	_, rate := load(tb, senders, func(int) error {
		timestamp := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte("whsec_a-secret"))
		mac.Write([]byte(timestamp + "."))
		mac.Write(body)
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("X-Service-Timestamp", timestamp)
		req.Header.Set("X-Service-Signature", hex.EncodeToString(mac.Sum(nil)))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Body.Close()
	})
	return rate
}

// noKeys derives the same secret for all.
type noKeys struct{}

func (noKeys) SigningSecret(string, secrets.Generated) (string, error) { return "whsec_a-secret", nil }
func (noKeys) Open(secrets.Field, []byte) ([]byte, error)              { return nil, secrets.ErrUnsealable }
func (noKeys) SealingKey() string                                      { return "key" }

// paceOfDeliveries returns the number of delivered results per second. Each connector gets n results, and each of the hanging
// connectors also gets n.
func paceOfDeliveries(tb testing.TB, db *database, connectors, hanging, n int) float64 {
	tb.Helper()
	silence(tb)
	queued := storebench.NewScene(tb, db.store, 1)
	var agents []scripted // each agent has the maximum number of links
	for i := 0; i < connectors+hanging; i += store.MaxOutboundLinks {
		agents = append(agents, scripted{name: fmt.Sprintf("%s-%d", agentName, len(agents)), text: output})
	}
	release(tb, db.store, queued, agents...)
	url, arrived := receiver(tb)
	for i := range connectors + hanging {
		path := "/"
		if i < hanging {
			path = "/hangs"
		}
		sendTo(tb, db.store, queued, agents[i/store.MaxOutboundLinks].name, url+path, i)
	}
	for _, agent := range agents {
		end(tb, db.store, queue(tb, db.store, store.Key{ProjectID: queued.Project, ID: connect(tb, db.store, queued, "sync", agent.name)}, n))
	}
	sender := delivery.New(delivery.Options{
		Store: db.store, Keys: noKeys{}, Logger: slog.New(slog.DiscardHandler),
		Guard: egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}}),
	})
	ctx, stop := context.WithCancel(tb.Context())
	ended, begun := make(chan error, 1), time.Now()
	go func() { ended <- sender.Run(ctx) }()
	for int(arrived.Load()) < connectors*n && time.Since(begun) < executedTimeout {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(begun)
	stop()
	require.NoError(tb, <-ended)
	done, err := db.count(tb.Context(), `SELECT count(*) FROM ended_connector_runs WHERE status = 'completed' AND trigger_type = 'outbound'`)
	require.NoError(tb, err)
	require.EqualValues(tb, connectors*n, done, "not all were delivered")
	return float64(connectors*n) / took.Seconds()
}

// sendTo creates an outbound connector with a link from an agent.
func sendTo(tb testing.TB, st store.Store, s *storebench.Scene, agent, url string, i int) {
	tb.Helper()
	connector := uuid.New()
	require.NoError(tb, st.PutConnector(tb.Context(), store.Connector{
		Ref: refOf(store.KindConnector), ID: connector, ProjectID: s.Project, EnvironmentID: s.Environment, Name: fmt.Sprint("to ", i),
		Type: "webhook", Mode: "outbound", Enabled: true, Config: fmt.Appendf(nil, `{"url":%q}`, url), SecretVersion: 1,
	}))
	require.NoError(tb, st.PutLink(tb.Context(), store.Link{
		Ref: refOf(store.KindConnectorLink), ID: uuid.New(), ProjectID: s.Project, ConnectorID: connector, AgentName: agent,
		Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.Unix(1, 0),
	}))
}

// end completes all queued runs.
func end(tb testing.TB, st store.Store, s scene) {
	tb.Helper()
	for {
		r, err := st.Claim(tb.Context(), store.Claim{
			Environment: store.Key{ProjectID: s.project, ID: s.environment}, RunnerID: "r", Slots: 64, Limit: store.MaxClaim, Lease: time.Minute,
		})
		require.NoError(tb, err)
		if len(r.Runs) == 0 {
			return
		}
		completions := make([]store.Completion, len(r.Runs))
		for i, c := range r.Runs {
			completions[i] = store.Completion{Lease: store.Lease{Run: c.Run.Key(), Token: c.Token}, Status: store.RunCompleted, Output: output}
		}
		_, err = st.Complete(tb.Context(), completions)
		require.NoError(tb, err)
	}
}
