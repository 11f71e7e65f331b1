// SPDX-License-Identifier: Apache-2.0

// Package mcp calls tools of MCP servers (Model Context Protocol) over streamable HTTP, and lists
// them for builds.
//
// The protocol is the SDK's. This package decides which requests are sent, and how often. A call is never
// sent twice once a byte of it may have left, unless the tool is vouched for. The SDK assumes that a
// failed request did not reach the server, and one bad answer ends all calls of its session. So the
// HTTP transport below the SDK, type wire, records sent requests, reads answers within limits, and
// keeps their exact text.
package mcp

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// MaxAnswer is the maximum size of an HTTP response of a server in bytes. The guarded HTTP client enforces it.
const MaxAnswer = 8 << 20

const (
	// maxEvent limits one server-sent event, in bytes.
	maxEvent = 1 << 20
	// idleTime is the time after its last use at which a session is closed.
	idleTime = 5 * time.Minute
	// pingAfter is the time after its last use at which a session is checked before a call that cannot be repeated.
	pingAfter = time.Minute
	// maxRepeats limits how often a call of a tool that is vouched for is sent again.
	maxRepeats = 2
	// repeatDelay is the delay before the first repetition. It doubles.
	repeatDelay = 200 * time.Millisecond
	// maxSchemas is the number of tools whose schemas are kept.
	maxSchemas = 1024
)

// Config configures a Client.
type Config struct {
	// HTTP is the guarded client for the purpose MCP; required. It returns redirects and limits
	// responses to MaxAnswer.
	HTTP *http.Client
	// Apps has the tokens of OAuth apps; nil means apps that only this client uses.
	Apps *oauth.Apps
	// Version is the version of the platform, which servers see; optional.
	Version string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Sleep waits between repeated calls; nil uses real time.
	Sleep func(ctx context.Context, d time.Duration) error
	// Compared is called with each comparison of pinned tools, from several goroutines; optional.
	Compared func(Comparison)
}

// Comparison is a comparison of the tools that are pinned for an agent with the tools that their server lists.
type Comparison struct {
	Subject
	// Drifted are the pinned tools that the server has changed or removed, by their names there.
	Drifted []string
}

// Subject is a server of an agent of a deployment, by their names.
type Subject struct{ DeploymentID, Agent, Server string }

// Client calls the tools of MCP servers. Runs share its sessions. It is safe for concurrent use.
type Client struct {
	cfg     Config
	schemas *cache.Cache[string, compiled] // by digest of the tool

	mu    sync.Mutex
	peers map[string]*peer // by Server.key, at most maxPeers and the used ones

	background sync.WaitGroup
	ended      context.Context //nolint:containedctx // the life of what runs in the background
	end        context.CancelFunc
}

// New creates a client. Close ends it.
func New(cfg Config) *Client {
	cfg.Version = cmp.Or(cfg.Version, "dev")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	if cfg.Apps == nil {
		cfg.Apps = oauth.NewApps(oauth.AppsConfig{HTTP: cfg.HTTP, Now: cfg.Now})
	}
	if cfg.Compared == nil {
		cfg.Compared = func(Comparison) {}
	}
	c := &Client{cfg: cfg, schemas: cache.New[string, compiled](maxSchemas, 0, nil), peers: map[string]*peer{}}
	c.ended, c.end = context.WithCancel(context.Background())
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Run closes idle sessions until the context ends, and then all.
func (c *Client) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	defer c.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.CloseIdle()
		}
	}
}

// Close closes all sessions and waits for the requests in the background. No call may be active.
func (c *Client) Close() {
	c.mu.Lock()
	for _, p := range c.peers {
		c.forgetPeer(p)
	}
	c.mu.Unlock()
	c.end()
	c.background.Wait()
}
