// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"fmt"
	"time"
)

// Wait waits for the requests in the background.
func (c *Client) Wait() { c.background.Wait() }

// MaxPeers is maxPeers.
const MaxPeers = maxPeers

// Peers returns the number of servers whose state is kept.
func (c *Client) Peers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.peers)
}

// TokensOf returns a function that returns the token of a server.
func (c *Client) TokensOf(server Server) func(context.Context) (string, error) {
	p := c.acquirePeer(server)
	defer c.releasePeer(p)
	return p.tokens.Token
}

// KeptReportText returns the text that a call keeps of a report with a text.
func KeptReportText(text string) string {
	p := newProgress(time.Now)
	p.addReport(fmt.Appendf(nil, `{"method":"notifications/progress","params":{"progressToken":%q,"message":%q}}`, p.token, text))
	return p.latest[0].Message
}
