// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// port is an in-memory dispatch port with fencing. Read its state with until or set, or after the
// servers have ended.
type port struct {
	mu      sync.Mutex
	changed chan struct{}

	digest  string
	bundles map[string][]byte
	lease   float64
	want    []string // to prefetch
	away    bool     // heartbeats fail

	runs     map[uuid.UUID]*portRun
	journals map[uuid.UUID][]dispatchapi.JournalEntry
	ends     map[uuid.UUID]dispatchapi.CompleteRequest
	fetched  map[string]int
	held     map[string][]string
	claims   map[string]int
	asked    []dispatchapi.ClaimRequest
	beats    []dispatchapi.HeartbeatRequest
	releases []dispatchapi.ReleaseRequest
	sends    []dispatchapi.SendRequest
	missed   int
	released int

	rejectJournal bool
	rejectSave    httpserver.Code // of the response to saves; "" accepts them
	loseAnswers   int             // number of claim responses with runs that are lost
	repeat        bool            // also hands out runs that the runner names
	onBundle      func() error    // called before a bundle is sent
}

type portRun struct {
	run       dispatchapi.Run
	status    string
	runner    string // owner of the claim
	elsewhere []byte
	files     dispatchapi.Files
	data      []string // content of the files; a missing one does not exist
	saved     map[string][]byte
}

func newPort(t *testing.T, files bundle.Files) *port {
	t.Helper()
	p := &port{
		changed: make(chan struct{}), bundles: map[string][]byte{}, lease: 30, runs: map[uuid.UUID]*portRun{},
		journals: map[uuid.UUID][]dispatchapi.JournalEntry{}, ends: map[uuid.UUID]dispatchapi.CompleteRequest{},
		fetched: map[string]int{}, held: map[string][]string{}, claims: map[string]int{},
	}
	p.digest = p.addBundle(t, files)
	return p
}

func (p *port) addBundle(t *testing.T, files bundle.Files) (digest string) {
	t.Helper()
	p.set(func() { digest = p.addBundleLocked(t, files) })
	return digest
}

// addBundleLocked is addBundle inside set.
func (p *port) addBundleLocked(t *testing.T, files bundle.Files) string {
	t.Helper()
	var b bytes.Buffer
	digest, _, err := bundle.Pack(files, &b)
	require.NoError(t, err)
	p.bundles[digest] = b.Bytes()
	return digest
}

// set changes the state and wakes waiting calls.
func (p *port) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// look reads the state while servers run.
func look[T any](p *port, read func() T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return read()
}

// until waits for a condition on the state.
func (p *port) until(t *testing.T, holds func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		done, changed := holds(), p.changed
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatal("waited for nothing")
		}
	}
}

func (p *port) queue(agent, contentType, input string) uuid.UUID {
	return p.queueRun(dispatchapi.Run{AgentName: agent, ContentType: contentType, Input: []byte(input)})
}

// queueRun queues a run and returns its ID.
func (p *port) queueRun(run dispatchapi.Run) uuid.UUID { return p.add(portRun{run: run}) }

func (p *port) queueElsewhere(agent, input string) uuid.UUID {
	return p.add(portRun{elsewhere: []byte(input), run: dispatchapi.Run{
		AgentName: agent, ContentType: "application/json", InputElsewhere: true,
	}})
}

// add queues a run with its data and returns its ID. A runner can claim it immediately.
func (p *port) add(run portRun) uuid.UUID {
	run.run.ID, run.status = uuid.New(), "queued"
	p.set(func() { p.runs[run.run.ID] = &run })
	return run.run.ID
}

func (p *port) status(id uuid.UUID) (status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id].status
}

// attempts returns how often a run was claimed.
func (p *port) attempts(id uuid.UUID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id].run.Attempt
}

// steal gives a run to another runner.
func (p *port) steal(id uuid.UUID) {
	p.set(func() { p.runs[id].run.Token++; p.runs[id].runner = "another" })
}

func (p *port) await(t *testing.T, id uuid.UUID) dispatchapi.CompleteRequest {
	t.Helper()
	p.until(t, func() bool { _, ok := p.ends[id]; return ok })
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[id]
}

// as returns the port for one runner.
func (p *port) as(id string) *runnerPort { return &runnerPort{port: p, id: id} }

type runnerPort struct {
	*port
	id string
}

func (r *runnerPort) Claim(ctx context.Context, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error) {
	r.set(func() {
		r.claims[r.id]++
		r.held[r.id] = req.Digests
		r.asked = append(r.asked, req)
	})
	for {
		r.mu.Lock()
		resp := r.answer(req)
		lost := len(resp.Runs) > 0 && r.loseAnswers > 0
		if lost {
			r.loseAnswers--
		}
		changed := r.changed
		r.mu.Unlock()
		switch {
		case lost:
			r.set(func() {})
			return dispatchapi.ClaimResponse{}, errors.New("connection was lost")
		case len(resp.Runs)+len(resp.Prefetch)+len(resp.Lost) > 0 || req.WaitSeconds == 0:
			return resp, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return resp, ctx.Err()
		}
	}
}

// answer returns the current news. The caller holds r.mu.
func (r *runnerPort) answer(req dispatchapi.ClaimRequest) (resp dispatchapi.ClaimResponse) {
	for _, l := range req.Holding {
		run := r.runs[l.RunID]
		_, ended := r.ends[l.RunID] // by the runner itself
		if !ended && (run.status != "running" || run.run.Token != l.Token) {
			resp.Lost = append(resp.Lost, l)
		}
	}
	for id, run := range r.runs {
		if run.status == "running" && run.runner == r.id && (r.repeat || !slices.Contains(req.Holding, dispatchapi.Lease{RunID: id, Token: run.run.Token})) {
			if req.Draining {
				run.status = "queued"
				continue
			}
			resp.Runs = append(resp.Runs, run.run)
		}
	}
	fresh := 0
	for _, run := range r.runs {
		if run.status == "queued" && fresh < req.Limit && !slices.Contains(req.Refused, r.digest) {
			fresh++
			run.status, run.runner = "running", r.id
			run.run.Token++
			run.run.Attempt++
			run.run.LeaseSeconds, run.run.BundleDigest = r.lease, r.digest
			if !run.run.JournalElsewhere {
				run.run.Journal = slices.Clone(r.journals[run.run.ID])
			}
			resp.Runs = append(resp.Runs, run.run)
		}
	}
	for _, digest := range r.want {
		if !slices.Contains(req.Digests, digest) {
			resp.Prefetch = append(resp.Prefetch, digest)
		}
	}
	return resp
}

func (r *runnerPort) Heartbeat(_ context.Context, req dispatchapi.HeartbeatRequest) (dispatchapi.HeartbeatResponse, error) {
	var resp dispatchapi.HeartbeatResponse
	var err error
	r.set(func() {
		if r.away {
			r.missed++
			err = errors.New("away")
			return
		}
		r.beats = append(r.beats, req)
		resp.LeaseSeconds = r.lease
		for _, l := range req.Leases {
			if run := r.runs[l.RunID]; run.run.Token != l.Token || run.status != "running" {
				resp.Lost = append(resp.Lost, l.Lease)
			}
		}
	})
	return resp, err
}

// fenced changes a run if the token is current.
func (r *runnerPort) fenced(id uuid.UUID, token int64, change func(run *portRun)) (err error) {
	r.set(func() {
		run := r.runs[id]
		if run.run.Token != token || run.status != "running" {
			err = dispatchapi.ErrFenced
			return
		}
		change(run)
	})
	return err
}

func (r *runnerPort) Journal(_ context.Context, id uuid.UUID, req dispatchapi.JournalRequest) error {
	if r.rejectJournal {
		return fmt.Errorf("too large: %w", dispatchapi.ErrRejected)
	}
	return r.fenced(id, req.Token, func(*portRun) { r.journals[id] = append(r.journals[id], req.Entries...) })
}

func (r *runnerPort) Complete(_ context.Context, id uuid.UUID, req dispatchapi.CompleteRequest) error {
	return r.fenced(id, req.Token, func(run *portRun) { run.status, r.ends[id] = req.Status, req })
}

func (r *runnerPort) Release(_ context.Context, id uuid.UUID, req dispatchapi.ReleaseRequest) error {
	return r.fenced(id, req.Token, func(run *portRun) {
		r.released++
		r.releases = append(r.releases, req)
		run.status = "queued"
	})
}

func (r *runnerPort) Send(_ context.Context, id uuid.UUID, req dispatchapi.SendRequest) (resp dispatchapi.SendResponse, err error) {
	err = r.fenced(id, req.Token, func(*portRun) {
		r.sends = append(r.sends, req)
		resp = dispatchapi.SendResponse{DeliveryID: id, Status: dispatchapi.SendQueued}
	})
	return resp, err
}

func (r *runnerPort) Input(_ context.Context, id uuid.UUID, _ int64) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[id].elsewhere, nil
}

func (r *runnerPort) Files(_ context.Context, id uuid.UUID) (dispatchapi.Files, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[id].files, nil
}

func (r *runnerPort) File(_ context.Context, id uuid.UUID, number int, _ int64) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number >= len(r.runs[id].data) {
		return nil, fmt.Errorf("no such file: %w", dispatchapi.ErrRejected)
	}
	return []byte(r.runs[id].data[number]), nil
}

func (r *runnerPort) Save(_ context.Context, id uuid.UUID, req dispatchapi.SaveRequest, data []byte) error {
	if r.rejectSave != "" {
		return &dispatchapi.RejectedError{Detail: "of the platform", Code: r.rejectSave}
	}
	var file dispatchapi.SavedFile
	if err := json.Unmarshal(req.Entries[0].Data, &file); err != nil {
		return err
	}
	return r.fenced(id, req.Token, func(run *portRun) {
		if run.saved == nil {
			run.saved = map[string][]byte{}
		}
		run.saved[file.ID], r.journals[id] = data, append(r.journals[id], req.Entries...)
	})
}

func (r *runnerPort) SavedPart(_ context.Context, id uuid.UUID, token int64, file string, offset, length int64) (part []byte, err error) {
	err = r.fenced(id, token, func(run *portRun) { part = run.saved[file][offset:min(offset+length, int64(len(run.saved[file])))] })
	return part, err
}

func (r *runnerPort) ReadJournal(_ context.Context, id uuid.UUID, token int64) (entries []dispatchapi.JournalEntry, err error) {
	err = r.fenced(id, token, func(*portRun) { entries = slices.Clone(r.journals[id]) })
	return entries, err
}

func (r *runnerPort) Bundle(_ context.Context, digest string, _ int64) ([]byte, error) {
	r.mu.Lock()
	before := r.onBundle
	r.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			r.set(func() { r.fetched[digest]++ })
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetched[digest]++
	data, ok := r.bundles[digest]
	if !ok {
		return nil, fmt.Errorf("no such bundle: %w", dispatchapi.ErrRejected)
	}
	return data, nil
}
