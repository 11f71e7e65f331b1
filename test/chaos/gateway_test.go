// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// gateway is a gateway process that the test can kill and restart at the same address.
type gateway struct {
	*process
	// addr is the address of the public port, and internal of the internal port.
	addr, internal string
	// link connects the gateway to the database. It is nil if the store is embedded.
	link *link

	// life is nil from before the process is killed until it is ready again.
	life atomic.Pointer[life]
	// inFlight are the requests that clients have open.
	inFlight atomic.Int64
}

// life counts the responses of a gateway that clients received between two starts.
type life struct {
	// accepted counts 2xx responses, and refused counts 503 responses. cut counts the requests that were sent completely before
	// the kill and got no response.
	accepted, refused, cut atomic.Int64
}

// newGateway returns a gateway that connects to the database through a new link.
func newGateway(t *testing.T, name, binary string, db *server, keys string) *gateway {
	t.Helper()
	link := newLink(t, db.addr())
	g := describeGateway(t, name, keys, binary, "--store-dsn-file", db.dsnFile(t, link.addr()))
	g.link = link
	return g
}

// nowhere is the kubeconfig of an unavailable Kubernetes API.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
users: [{name: u}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`

// newWhole describes a process that is all of the platform, on the embedded store. Its
// gateway needs no Kubernetes, and there is none.
func newWhole(t *testing.T, name, binary string, store *file, keys string) *gateway {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, nowhere, loopback(freePort(t))), 0o600))
	g := describeGateway(t, name, keys, binary, "all", "--sqlite", store.path, "--api-addr", loopback(freePort(t)), "--image", "none")
	g.more = []string{"KUBECONFIG=" + config}
	return g
}

// describeGateway returns a gateway with new ports. keys is the folder of its keys, or "" for none. args start with its binary.
func describeGateway(t *testing.T, name, keys string, args ...string) *gateway {
	t.Helper()
	if keys != "" {
		args = append(args, "--keys-dir", keys, "--allow-egress=webhook=127.0.0.0/8")
	}
	g := &gateway{addr: loopback(freePort(t)), internal: loopback(freePort(t))}
	g.process = newProcess(t, name, append(args, "--public-addr", g.addr, "--internal-addr", g.internal, "--drain", "5s")...)
	g.port = g.addr
	return g
}

// start starts the process and returns once it is ready.
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

// ready reports whether the gateway's readiness probe succeeds.
func (g *gateway) ready(ctx context.Context) bool {
	status, _, err := g.get(ctx, "/readyz")
	return err == nil && status == http.StatusOK
}

// seen returns the responses that clients received since the gateway started, or an error if the gateway is down.
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
