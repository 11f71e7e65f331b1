// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/agentplatform/agentplatform/internal/pause"
)

const (
	clients = 32
	// requestTimeout bounds a request; its outcome is unknown after that.
	requestTimeout = time.Minute
	// refusedPause is how long a client waits after a 503 response.
	refusedPause = 50 * time.Millisecond
)

// mark is one request with its retries and the outcome that its client knows.
type mark struct {
	text      string
	connector uuid.UUID
	keyed     bool
	// sends counts the attempts that may have reached a gateway.
	sends int
	// runs are the agent runs that a 2xx named; nil without a 2xx.
	runs []uuid.UUID
}

// load is the clients and their ledger.
type load struct {
	connectors []uuid.UUID
	targets    []*gateway
	client     *http.Client
	// pace limits the number of new requests per second.
	pace *rate.Limiter
	// enough is closed when clients must start no more requests.
	enough chan struct{}

	kills, killsHit, cut int // the killer's own

	mu          sync.Mutex
	marks       map[string]*mark
	successes   int
	unavailable int
	surprises   []string // responses that no gateway may return
}

func newLoad(connectors []uuid.UUID, targets []*gateway, pace rate.Limit) *load {
	return &load{
		connectors: connectors, targets: targets, pace: rate.NewLimiter(pace, clients), enough: make(chan struct{}), marks: map[string]*mark{},
		client: &http.Client{
			Timeout:   requestTimeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: clients},
		},
	}
}

func (l *load) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.successes
}

// work runs one client: it posts until enough is closed. Every second request has an idempotency key.
func (l *load) work(ctx context.Context, number int) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.enough:
			return nil
		default:
		}
		if err := l.pace.Wait(ctx); err != nil {
			return err
		}
		m := &mark{
			text:      fmt.Sprintf("client-%d-request-%d", number, n),
			connector: l.connectors[(number+n)%len(l.connectors)],
			keyed:     n%2 == 0,
		}
		l.mu.Lock()
		l.marks[m.text] = m
		l.mu.Unlock()
		if err := l.deliver(ctx, m, number+n/2); err != nil {
			return err
		}
	}
}

// deliver sends a request, one with a key until its outcome is known, to one
// gateway after the other.
func (l *load) deliver(ctx context.Context, m *mark, turn int) error {
	return poll(ctx, pollEvery, func() (bool, error) {
		g := l.targets[turn%len(l.targets)]
		turn++
		life := g.life.Load()
		if life == nil {
			return false, nil
		}
		return l.send(ctx, g, life, m) || !m.keyed, ctx.Err()
	})
}

// send posts once and records the outcome. It returns true if the outcome is known.
func (l *load) send(ctx context.Context, g *gateway, life *life, m *mark) (known bool) {
	g.inFlight.Add(1)
	defer g.inFlight.Add(-1)
	status, body, sent, err := l.post(ctx, g, life, m)
	var dial *net.OpError
	refused := errors.As(err, &dial) && dial.Op == "dial"
	if !refused {
		m.sends++
	}
	switch {
	case err != nil:
		switch {
		case ctx.Err() == nil && g.life.Load() == life:
			l.surprise(fmt.Sprintf("%s: a gateway that lives broke off: %v", m.text, err))
		case sent:
			life.cut.Add(1)
		}
		return false
	case status == http.StatusServiceUnavailable:
		l.mu.Lock()
		l.unavailable++
		l.mu.Unlock()
		life.refused.Add(1)
		_ = pause.For(ctx, refusedPause) // the caller checks ctx
		return false
	case status != http.StatusOK:
		l.surprise(fmt.Sprintf("%s: answered %d %q", m.text, status, body))
		return true
	}
	runs, err := readAnswer(body)
	if err != nil {
		l.surprise(fmt.Sprintf("%s: answered %d %q", m.text, status, body))
		return true
	}
	m.runs = runs
	life.accepted.Add(1)
	l.mu.Lock()
	l.successes++
	l.mu.Unlock()
	return true
}

// post sends the request. sent reports whether the last byte was sent in the gateway's lifetime.
func (l *load) post(ctx context.Context, g *gateway, life *life, m *mark) (status int, body []byte, sent bool, err error) {
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { wrote.Store(info.Err == nil && g.life.Load() == life) },
	})
	text, err := json.Marshal(map[string]any{"marker": m.text, "order": map[string]any{"items": 3, "note": "please ring twice"}})
	if err != nil {
		return 0, nil, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.addr+"/hooks/"+project.String()+"/"+m.connector.String(), bytes.NewReader(text))
	if err != nil {
		return 0, nil, false, err
	}
	// net/http repeats requests with a key by itself; here each time counts.
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Service-Secret", secret)
	if m.keyed {
		req.Header.Set("Idempotency-Key", m.text)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, nil, wrote.Load(), err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, wrote.Load(), err
}

func (l *load) surprise(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.surprises = append(l.surprises, what)
}

// readAnswer reads the one body that a 2xx has.
func readAnswer(body []byte) ([]uuid.UUID, error) {
	var answer struct {
		Status       string      `json:"status"`
		DispatchedTo int         `json:"dispatched_to"`
		RunIDs       []uuid.UUID `json:"run_ids"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&answer); err != nil {
		return nil, err
	}
	slices.SortFunc(answer.RunIDs, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	different := len(slices.Compact(slices.Clone(answer.RunIDs)))
	if answer.Status != "ok" || answer.DispatchedTo != links || len(answer.RunIDs) != links || different != links || decoder.More() {
		return nil, errors.New("this is no answer to an inbound webhook")
	}
	return answer.RunIDs, nil
}
