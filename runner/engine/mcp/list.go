// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/redact"
)

const (
	// maxPages, maxListed and maxListSize limit the list of a server: its pages, its tools and their bytes.
	maxPages    = 50
	maxListed   = 1000
	maxListSize = 1 << 20
	// defaultTTL is how long a list is used if the server does not say it.
	defaultTTL = 5 * time.Minute
	// maxTTL is the maximum time between two lists of a server that is used.
	maxTTL = 10 * time.Minute
	// keepPeers is how long a list, and the state of an unused server, is kept in memory.
	keepPeers = time.Hour
)

// listing is the list of a server's tools.
type listing struct {
	protocol string
	tools    []bundle.LockedTool
	at       time.Time
	ttl      time.Duration
}

// errCached means that the SDK answered from its own cache, which has no exact schemas: the last list is still valid.
var errCached = errors.New("the last list is still valid")

var errLargeList = fmt.Errorf("the server's tools have more than %d bytes", maxListSize)

var errTooManyTools = fmt.Errorf("the server lists more than %d tools", maxListed)

// List returns all tools of a server and the version of the protocol, from the server.
func (c *Client) List(ctx context.Context, server Server) (bundle.LockedServer, error) {
	p := c.acquirePeer(server)
	defer c.releasePeer(p)
	ctx = recordTokens(ctx, p.tokens)
	l, err := c.listTools(ctx, server)
	if err != nil {
		return bundle.LockedServer{}, describeError(server, server.hidden(ctx, p.tokens), err)
	}
	return bundle.LockedServer{Name: server.Spec.Name, Protocol: l.protocol, Tools: l.tools}, nil
}

// listTools lists the tools of a server and keeps the list.
func (c *Client) listTools(ctx context.Context, server Server) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, server.Spec.CallTimeout())
	defer cancel()
	p := c.acquirePeer(server)
	defer c.releasePeer(p)
	ctx = recordTokens(ctx, p.tokens)
	s, err := c.acquireSession(ctx, server)
	if err != nil {
		return nil, err
	}
	defer c.releaseSession(s)
	l, err := s.listTools(ctx)
	if err != nil && !errors.Is(err, errCached) {
		c.dropSession(s)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := p.list; err != nil && known != nil {
		again := *known
		l, err = &again, nil
	}
	if err != nil {
		return nil, err
	}
	l.at = c.cfg.Now()
	p.list, p.compared = l, map[Subject]bool{}
	return l, nil
}

// listTools reads all pages of the list.
func (s *session) listTools(ctx context.Context) (*listing, error) {
	l := &listing{protocol: s.sdk.InitializeResult().ProtocolVersion}
	cursor, size := "", 0
	for range maxPages {
		x := &exchange{method: methodList, repeatable: true}
		page, err := s.sdk.ListTools(withExchange(ctx, x), &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, s.describeWait(err, x)
		}
		if x.result == nil {
			return nil, errCached
		}
		tools, err := readTools(x.result, page.Tools, s.server.hidden(ctx, s.peer.tokens))
		if err != nil {
			return nil, err
		}
		for _, t := range tools {
			size += t.Size()
		}
		if size > maxListSize {
			return nil, errLargeList
		}
		if l.tools = append(l.tools, tools...); len(l.tools) > maxListed {
			return nil, errTooManyTools
		}
		l.ttl = time.Duration(page.TTLMs) * time.Millisecond
		if page.NextCursor == "" || page.NextCursor == cursor {
			return l, nil
		}
		cursor = page.NextCursor
	}
	return nil, errTooManyTools
}

// errToolList means that a list is not as the protocol says.
var errToolList = errors.New("the list of tools is invalid")

// readTools returns the tools of a page with their exact schemas, without secrets. valid are the tools that the SDK accepts.
func readTools(page json.RawMessage, valid []*mcp.Tool, hidden *redact.Secrets) (tools []bundle.LockedTool, err error) {
	var exact struct {
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"inputSchema"`
			Annotations json.RawMessage `json:"annotations"`
		} `json:"tools"`
	}
	page, err = redactPage(page, hidden)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errToolList, err)
	}
	if err := exactjson.Decode(page, &exact); err != nil {
		return nil, fmt.Errorf("%w: %w", errToolList, err)
	}
	accepted := map[string]bool{}
	for _, t := range valid {
		accepted[t.Name] = true
	}
	for _, t := range exact.Tools {
		if !accepted[t.Name] {
			continue
		}
		accepted[t.Name] = false // A name that is listed twice counts once.
		tool, err := bundle.NewLockedTool(t.Name, t.Description, t.Schema, t.Annotations)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errToolList, err)
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// redactPage removes secrets from the texts of a page. Servers can describe tools with the headers of the request.
func redactPage(page json.RawMessage, hidden *redact.Secrets) (json.RawMessage, error) {
	var value any
	if err := exactjson.Decode(page, &value); err != nil {
		return nil, err
	}
	return json.Marshal(hidden.RedactValue(value))
}

// Live returns the tools of a server that is not pinned, from a list that is at most as old as the server allows.
func (c *Client) Live(ctx context.Context, server Server) (bundle.LockedServer, error) {
	c.mu.Lock()
	l := c.peerOf(server).list
	fresh := l != nil && c.cfg.Now().Sub(l.at) < listLifetime(l.ttl, defaultTTL)
	c.mu.Unlock()
	if !fresh {
		return c.List(ctx, server)
	}
	return bundle.LockedServer{Name: server.Spec.Name, Protocol: l.protocol, Tools: l.tools}, nil
}

// listLifetime returns how long a list is used.
func listLifetime(ttl, without time.Duration) time.Duration {
	if ttl <= 0 {
		return without
	}
	return min(ttl, maxTTL)
}

// watchDrift lists the tools of a pinned server in the background, if the last list is too old. It compares each list once for
// each agent with the pinned tools. It returns the names of the tools in the last list, nil before the first one.
func (c *Client) watchDrift(server Server, subject Subject, pinned []bundle.LockedTool) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, now := c.peerOf(server), c.cfg.Now()
	l := p.list
	age := maxTTL
	if l != nil {
		age = listLifetime(l.ttl, maxTTL)
	}
	switch {
	case c.ended.Err() != nil:
	case now.Sub(p.checkedAt) >= age:
		p.checkedAt = now
		c.background.Add(1)
		go func() {
			defer c.background.Done()
			if l, err := c.listTools(c.ended, server); err == nil {
				c.compareTools(p, l, subject, pinned)
			}
		}()
	case l != nil && !p.compared[subject]:
		c.background.Add(1)
		go func() {
			defer c.background.Done()
			c.compareTools(p, l, subject, pinned)
		}()
	}
	if l == nil {
		return nil
	}
	names := make(map[string]bool, len(l.tools))
	for _, t := range l.tools {
		names[t.Name] = true
	}
	return names
}

// compareTools compares a list with the pinned tools of an agent, unless the agent was compared with the same list before.
func (c *Client) compareTools(p *peer, l *listing, subject Subject, pinned []bundle.LockedTool) {
	c.mu.Lock()
	known := p.list != l || p.compared[subject]
	if !known {
		p.compared[subject] = true
	}
	c.mu.Unlock()
	if !known {
		c.cfg.Compared(Comparison{Subject: subject, Drifted: driftedTools(pinned, l.tools)})
	}
}

// driftedTools returns the names of the pinned tools that a list does not have, or has with another digest.
func driftedTools(pinned, listed []bundle.LockedTool) (names []string) {
	digests := make(map[string]string, len(listed))
	for _, t := range listed {
		digests[t.Name] = t.Digest
	}
	for _, t := range pinned {
		if digests[t.Name] != t.Digest {
			names = append(names, t.Name)
		}
	}
	return names
}
