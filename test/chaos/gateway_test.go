// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// gateway is a gateway process that dies and comes back at the same address.
type gateway struct {
	*process
	// addr is of the webhooks' port, internal of the runners'.
	addr, internal string
	// link is how it reaches the database.
	link *link

	// life is nil from before the process is killed until it is ready again.
	life atomic.Pointer[life]
	// inFlight are the requests that clients have open.
	inFlight atomic.Int64
}

// life is what clients saw of a gateway between two starts.
type life struct {
	// accepted are its 2xx, refused its 503, cut the requests that were sent whole
	// before the kill and broke off.
	accepted, refused, cut atomic.Int64
}

// newGateway describes one that is at a database by a link of its own.
func newGateway(t *testing.T, name, binary string, db *server) *gateway {
	t.Helper()
	g := &gateway{addr: loopback(freePort(t)), internal: loopback(freePort(t)), link: newLink(t, db.addr())}
	g.process = newProcess(t, name, binary, "--store-dsn-file", db.dsnFile(t, g.link.addr()), "--public-addr", g.addr,
		"--internal-addr", g.internal, "--drain", "5s")
	return g
}

// start begins a life of the process and returns once it is ready.
func (g *gateway) start(ctx context.Context) error {
	if err := g.launch(); err != nil {
		return err
	}
	if err := g.await(ctx, g.ready); err != nil {
		return err
	}
	g.life.Store(&life{})
	return nil
}

// ready asks the gateway whether it is.
func (g *gateway) ready(ctx context.Context) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// seen is what clients have seen of it since it started; an error when it is down.
func (g *gateway) seen() (accepted, refused int64, err error) {
	life := g.life.Load()
	if life == nil {
		return 0, 0, fmt.Errorf("%s is down", g.name)
	}
	return life.accepted.Load(), life.refused.Load(), nil
}

// settled returns once no client waits for a gateway that is gone.
func (g *gateway) settled(ctx context.Context) error {
	if err := poll(ctx, pollEvery, func() (bool, error) { return g.inFlight.Load() == 0, nil }); err != nil {
		return fmt.Errorf("waiting for the requests that %s left: %w", g.name, err)
	}
	return nil
}
