// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"time"

	"github.com/agentplatform/agentplatform/runner/oauth"
)

// maxPeers is the number of servers whose sessions, tokens and lists a Client keeps. Used servers are
// never evicted, so that one agent with many servers does not interrupt the calls of another.
const maxPeers = 256

// peer is the state of a Client for a server: of one address with one set of headers and credentials. Client.mu guards it.
type peer struct {
	key string
	// users are the calls and lists that use the peer.
	users   int
	lastUse time.Time

	session *session
	tokens  *oauth.Source // nil without credentials
	list    *listing
	// compared are the agents whose pinned tools were compared with list.
	compared map[Subject]bool
	// checkedAt is the start of the last list in the background.
	checkedAt time.Time
}

// peerOf returns the state for a server. The caller holds mu.
func (c *Client) peerOf(server Server) *peer {
	p := c.peers[server.key]
	if p == nil {
		c.evictPeers()
		p = &peer{key: server.key, tokens: c.newTokens(server)}
		c.peers[server.key] = p
	}
	p.lastUse = c.cfg.Now()
	return p
}

// acquirePeer returns the state for a server and keeps it until the caller calls releasePeer.
func (c *Client) acquirePeer(server Server) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(server)
	p.users++
	return p
}

func (c *Client) releasePeer(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.users--
	p.lastUse = c.cfg.Now()
}

func (p *peer) isUsed() bool { return p.users > 0 || p.session != nil && p.session.users > 0 }

// evictPeers makes room for a peer. It forgets the least recently used ones that nothing uses. The caller holds mu.
func (c *Client) evictPeers() {
	for len(c.peers) >= maxPeers {
		var oldest *peer
		for _, p := range c.peers {
			if !p.isUsed() && (oldest == nil || p.lastUse.Before(oldest.lastUse)) {
				oldest = p
			}
		}
		if oldest == nil {
			return // Only as many peers as there are calls at this moment exceed the limit.
		}
		c.forgetPeer(oldest)
	}
}

// forgetPeer forgets a peer and closes its session, after its last use. The caller holds mu.
func (c *Client) forgetPeer(p *peer) {
	delete(c.peers, p.key)
	if s := p.session; s != nil {
		p.session = nil
		if s.users == 0 {
			c.closeSession(s)
		}
	}
}

// CloseIdle closes the sessions that were not used for 5 minutes, and forgets the servers that were not used for an hour.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	for _, p := range c.peers {
		if s := p.session; s != nil && s.users == 0 && now.Sub(s.lastUse) >= idleTime {
			p.session = nil
			c.closeSession(s)
		}
		if l := p.list; l != nil && now.Sub(l.at) >= keepPeers {
			p.list = nil
		}
		if !p.isUsed() && now.Sub(p.lastUse) >= keepPeers {
			c.forgetPeer(p)
		}
	}
}
