// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"cmp"
	"net/url"
	"strconv"
	"time"
)

// Server is the server of a request, in journals. It has nothing else of an address, because users, paths and queries can have
// secrets.
type Server struct {
	// Address is a host name or an IP address.
	Address string `json:"address"`
	Port    int    `json:"port,omitempty"`
}

// defaultPorts are the ports of URLs without one.
var defaultPorts = map[string]int{"http": 80, "https": 443}

// ServerOf returns the server of a URL; nil if the URL has no host.
func ServerOf(u *url.URL) *Server {
	if u == nil || u.Hostname() == "" {
		return nil
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || port > maxPort {
		port = 0
	}
	return &Server{Address: cutName(u.Hostname()), Port: cmp.Or(port, defaultPorts[u.Scheme])}
}

// maxPort is the highest port.
const maxPort = 1<<16 - 1

// addServer adds the server of a request, also one that a foreign runner wrote.
func (s *Span) addServer(server *Server) {
	if server == nil || server.Address == "" {
		return
	}
	s.Attributes["server.address"] = cutName(server.Address)
	if server.Port > 0 && server.Port <= maxPort {
		s.Attributes["server.port"] = server.Port
	}
}

// MCPCall is a call of a tool of an MCP server, in journals.
type MCPCall struct {
	// Tool is the name of the tool at its server.
	Tool string `json:"tool"`
	// Protocol is the version of the protocol, Session a digest of the ID of the session, which can be a secret. Both are "" without a
	// connection, and Session also if the server has no sessions.
	Protocol string `json:"protocol,omitempty"`
	Session  string `json:"session,omitempty"`
	// Progress are the latest reports of progress, at most MaxProgress. Entries of earlier releases have none.
	Progress []MCPProgress `json:"progress,omitempty"`
}

// MaxProgress limits the reports of progress of a call.
const MaxProgress = 20

// MCPProgress is a report of a server during a call. Total is 0 if the server does not know it.
type MCPProgress struct {
	At       time.Time `json:"at"`
	Progress float64   `json:"progress"`
	Total    float64   `json:"total,omitempty"`
	Message  string    `json:"message,omitempty"`
}

// AddProgress adds a report.
func (c *MCPCall) AddProgress(report MCPProgress) {
	report.Message = cutName(report.Message)
	c.Progress = append(c.Progress, report)
}

// progressEvent is the name of the event for a report of progress.
const progressEvent = "agentplatform.progress"

// ProgressMessage is the attribute with the text of a report. A server wrote the text, so it is content.
const ProgressMessage = progressEvent + ".message"

// addProgress adds an event for each report.
func (s *Span) addProgress(reports []MCPProgress) {
	for _, report := range reports[:min(len(reports), MaxProgress)] {
		at, _ := span{At: report.At}.timesOf(s.Start)
		attributes := map[string]any{progressEvent + ".value": report.Progress}
		if report.Total > 0 {
			attributes[progressEvent+".total"] = report.Total
		}
		if report.Message != "" {
			attributes[ProgressMessage] = cutName(report.Message)
		}
		s.Events = append(s.Events, Event{At: at, Name: progressEvent, Attributes: attributes})
	}
}

// NewMCPCall returns a call in a session with an ID, or "".
func NewMCPCall(tool, protocol, session string) MCPCall {
	call := MCPCall{Tool: tool, Protocol: cutName(protocol)}
	if session != "" {
		call.Session = digestOf(session)[:sessionDigits]
	}
	return call
}

// sessionDigits are the hexadecimal digits of the digest of a session.
const sessionDigits = 16

// mcpMethod is the method of all MCP requests that are spans.
const mcpMethod = "tools/call"

// RequestPosition returns the position of the span that sends the requests of a call. A tool of an MCP server has a span for its
// request inside of the span for the call.
func RequestPosition(toolType, callID string) string {
	if toolType == TypeMCP {
		return mcpPosition + callID
	}
	return callID
}

// addRequest adds the span of the request to an MCP server inside of the span of its call.
func (b *Builder) addRequest(call *Span, id, tool string) {
	s := b.newSpan(RequestPosition(TypeMCP, id), KindMCP, mcpMethod+" "+tool)
	s.Start, s.Sequence = call.Start, call.Sequence
	s.Attributes["gen_ai.operation.name"] = call.Attributes["gen_ai.operation.name"]
	s.Attributes["gen_ai.tool.name"] = cutName(tool)
	s.Attributes["mcp.method.name"] = mcpMethod
	s.Attributes["network.transport"] = "tcp"
	b.setParent(s, id)
}

// endRequest ends the span of a request to an MCP server with the end of its call.
func (b *Builder) endRequest(call *Span, r *resultEntry) {
	s := b.spanAt(RequestPosition(TypeMCP, r.CallID))
	if s == nil || s.Kind != KindMCP {
		call.addServer(r.Server)
		return
	}
	s.End, s.Sequence, s.ErrorType, s.Error = call.End, call.Sequence, call.ErrorType, call.Error
	s.addServer(r.Server)
	if m := r.MCP; m != nil {
		s.addProgress(m.Progress)
		s.Name = cutName(mcpMethod + " " + m.Tool)
		s.Attributes["gen_ai.tool.name"] = cutName(m.Tool)
		for name, value := range map[string]string{"mcp.protocol.version": m.Protocol, "mcp.session.id": m.Session} {
			if value != "" {
				s.Attributes[name] = cutName(value)
			}
		}
	}
	b.changed = append(b.changed, s)
}
