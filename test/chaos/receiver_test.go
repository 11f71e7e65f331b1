// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// receiver is the destination of results. It accepts most deliveries at once, and rejects some until they are retried. It
// identifies each delivery by its ID.
type receiver struct {
	*httptest.Server

	mu sync.Mutex
	// runs maps each delivery with a 2xx response to its run.
	runs  map[uuid.UUID]uuid.UUID
	taken map[uuid.UUID]bool
	// held, where it is not nil, keeps every request until it is closed.
	held      chan struct{}
	waiting   int
	surprises []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{runs: map[uuid.UUID]uuid.UUID{}, taken: map[uuid.UUID]bool{}}
	r.Server = httptest.NewServer(r)
	r.Config.Handler = r
	t.Cleanup(func() {
		r.thaw()
		r.Close()
	})
	return r
}

// ServeHTTP accepts a delivery, but rejects every sixteenth delivery on its first attempt. It hangs while the receiver is
// frozen.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var body struct {
		RunID uuid.UUID `json:"run_id"`
	}
	err := json.NewDecoder(request.Body).Decode(&body)
	id, parsed := uuid.Parse(request.Header.Get("X-Service-Delivery"))
	if err != nil || parsed != nil {
		if request.Context().Err() == nil && parsed != nil {
			r.surprise(fmt.Sprintf("a delivery without an id: %v", request.Header))
		}
		return // the sender may have been killed
	}
	r.mu.Lock()
	of, known := r.runs[id]
	r.runs[id] = body.RunID
	held := r.held
	r.mu.Unlock()
	if known && of != body.RunID {
		r.surprise(fmt.Sprintf("delivery %s is of run %s, and was of run %s", id, body.RunID, of))
	}
	if held != nil {
		r.wait(1)
		defer r.wait(-1)
		select {
		case <-held:
		case <-request.Context().Done():
			return
		}
	}
	hash := fnv.New32()
	_, _ = hash.Write(id[:]) // which never fails
	if !known && hash.Sum32()%16 == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	r.taken[id] = true
	r.mu.Unlock()
}

func (r *receiver) wait(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting += n
}

func (r *receiver) surprise(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surprises = append(r.surprises, what)
}

// thaw releases the held requests.
func (r *receiver) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

// freezes makes deliveries hang and waits until n deliveries hang.
func freezes(n int) step {
	return step{what: fmt.Sprintf("the destination hangs with %d deliveries", n), do: func(ctx context.Context, s *stage) error {
		s.receiver.mu.Lock()
		s.receiver.held = make(chan struct{})
		s.receiver.mu.Unlock()
		return poll(ctx, pollEvery, func() (bool, error) {
			s.receiver.mu.Lock()
			defer s.receiver.mu.Unlock()
			return s.receiver.waiting >= n, nil
		})
	}}
}

// thaws releases the hanging deliveries.
func thaws() step {
	return step{what: "the destination answers again", do: func(_ context.Context, s *stage) error {
		s.receiver.thaw()
		return nil
	}}
}

// sendsOn waits for n more accepted deliveries.
func sendsOn(n int) step {
	return step{what: fmt.Sprintf("%d results are delivered", n), do: func(ctx context.Context, s *stage) error {
		before := s.receiver.count()
		return poll(ctx, pollEvery, func() (bool, error) { return s.receiver.count() >= before+n, nil })
	}}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken)
}

// newKeys registers the platform's keys in a store and writes them to a folder.
func newKeys(t *testing.T, s store.Store) (dir, derivation string) {
	t.Helper()
	ctx := t.Context()
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	var known []store.PlatformKey
	for _, of := range []string{secrets.Derivation, secrets.Sealing} {
		for _, id := range ring.IDs(of) {
			known = append(known, store.PlatformKey{ID: id, Ring: of, Fingerprint: ring.Fingerprints()[id]})
		}
	}
	require.NoError(t, s.AdmitKeys(ctx, known, nil))
	_, err = s.ReportKeys(ctx, "chaos", ring.Fingerprints())
	require.NoError(t, err)
	_, err = s.PromoteKeys(ctx, store.KeyHolderAge)
	require.NoError(t, err)
	data, err := ring.Data()
	require.NoError(t, err)
	dir = t.TempDir()
	for name, content := range data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir, ring.IDs(secrets.Derivation)[0]
}
