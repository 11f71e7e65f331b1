// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/expand"
)

// Defaults of the keys of an MCP server.
const (
	DefaultMCPTimeout        = time.Minute
	DefaultMCPConnectTimeout = 10 * time.Second
	DefaultMCPMaxResult      = 64 << 10
)

// Values of MCPServer.Discovery and MCPServer.OnLostAnswer that are not the defaults.
const (
	// MCPLive lists the tools of a server at the first request of a run.
	MCPLive = "live"
	// MCPFail fails a run whose call was sent and not answered.
	MCPFail = "fail"
)

// MCPServer is a server that offers tools over HTTP.
type MCPServer struct {
	Name           string            `yaml:"name" required:"true" form:"label" example:"crm" doc:"Name of the server in this repository. Agents that use the same name must have the same 'url', 'headers', 'oauth', 'oauth_app' and 'discovery'."`
	URL            string            `yaml:"url" variables:"any" required:"true" form:"url" example:"'https://mcp.example.com/mcp'" doc:"URL of the server, http or https. It may contain variables of the environment, as '${NAME}'."`
	Tools          []string          `yaml:"tools" form:"mcpTool" without:"all" example:"[get_customer, 'search_*']" doc:"Tools of the server that the model may call, at most 64. '*' stands for any characters. A pattern without a match fails the build."`
	Exclude        []string          `yaml:"exclude" form:"mcpTool" example:"['search_internal_*']" doc:"Tools of the server that the model may not call, also if 'tools' has them."`
	Prefix         string            `yaml:"prefix" form:"mcpPrefix" example:"crm_" doc:"Text before the name of each tool that the model sees."`
	Headers        map[string]string `yaml:"headers" variables:"any" example:"{X-Team: '${TEAM}', X-Tenant: '${context.tenant}'}" doc:"Headers of each request, at most 20. A value may contain variables of the environment, as '${NAME}', and values of the run's context, as '${context.tenant}'. The build sends no header with a value of the context."`
	OAuth          *MCPOAuth         `yaml:"oauth" doc:"Credentials for an access token (OAuth 2.0 client credentials). Not together with 'oauth_app' or a header 'Authorization'."`
	OAuthApp       string            `yaml:"oauth_app" form:"label" doc:"OAuth app of the environment whose access token is sent, instead of 'oauth'. Not together with a header 'Authorization'."`
	Timeout        Duration          `yaml:"timeout" min:"1" max:"600" without:"1 minute" example:"30" doc:"Time limit of a call in seconds, or as text such as '30s'."`
	ConnectTimeout Duration          `yaml:"connect_timeout" min:"1" max:"60" without:"10 seconds" example:"5" doc:"Time limit of connecting to the server in seconds, or as text such as '5s'."`
	MaxResult      int               `yaml:"max_result" min:"1024" max:"262144" without:"65536" example:"32768" doc:"Maximum size of a result in bytes. The middle of a longer result is left out."`
	Discovery      string            `yaml:"discovery" enum:"pinned,live" without:"pinned" example:"pinned" doc:"When the tools are listed: 'pinned' in the build, so that each run sees the tools that were tested; 'live' at the first request of a run."`
	Required       *bool             `yaml:"required" without:"true" example:"false" doc:"Fails the build if the server cannot be reached. If 'false', the build only logs a warning, and the agent has no tools of the server. Runs then have no tools of it either if the environment lacks its OAuth app."`
	Idempotent     []string          `yaml:"idempotent" form:"mcpTool" example:"[get_customer]" doc:"Tools whose repeated calls have no other effect than one call. Only these, and tools that the server marks as read-only, are called again if an answer is lost."`
	OnLostAnswer   string            `yaml:"on_lost_answer" enum:"tell,fail" without:"tell" example:"fail" doc:"What happens if a call was sent and its answer is lost: 'tell' tells the model that the outcome is unknown, 'fail' fails the run with 'mcp_unavailable'."`
	Discoverable   bool              `yaml:"discoverable" without:"false" example:"true" doc:"Leaves the tools out of requests to the model, which finds them with 'search_tools' and calls them with 'use_tool'."`
}

// MCPOAuth are client credentials (RFC 6749, section 4.4).
type MCPOAuth struct {
	ClientID     string   `yaml:"client_id" variables:"any" required:"true" example:"'${CRM_CLIENT_ID}'" doc:"ID of the client. It may contain variables of the environment."`
	ClientSecret string   `yaml:"client_secret" variables:"any" required:"true" example:"'${CRM_CLIENT_SECRET}'" doc:"Secret of the client. Use a sensitive variable of the environment."`
	Scopes       []string `yaml:"scopes" example:"[crm.read]" without:"the scopes that the server names" doc:"Scopes of the token."`
	TokenURL     string   `yaml:"token_url" variables:"any" form:"url" without:"the address that the server names" example:"'https://login.example.com/token'" doc:"URL of the token endpoint, http or https. Without it the secret is sent to the authorization server that the MCP server names."`
}

// CallTimeout returns the time limit of a call.
func (s *MCPServer) CallTimeout() time.Duration { return cmp.Or(s.Timeout.Std(), DefaultMCPTimeout) }

// ConnectLimit returns the time limit of connecting.
func (s *MCPServer) ConnectLimit() time.Duration {
	return cmp.Or(s.ConnectTimeout.Std(), DefaultMCPConnectTimeout)
}

// ResultLimit returns the maximum size of a result in bytes.
func (s *MCPServer) ResultLimit() int { return cmp.Or(s.MaxResult, DefaultMCPMaxResult) }

// IsRequired reports whether a build fails if the server cannot be reached.
func (s *MCPServer) IsRequired() bool { return s.Required == nil || *s.Required }

// IsPinned reports whether the build lists the server's tools.
func (s *MCPServer) IsPinned() bool { return s.Discovery != MCPLive }

// Offers reports whether the agent may call a tool, by the tool's name at the server.
func (s *MCPServer) Offers(tool string) bool {
	return (len(s.Tools) == 0 || matchesAny(s.Tools, tool)) && !matchesAny(s.Exclude, tool)
}

// Select returns the tools that the agent may call.
func (s *MCPServer) Select(listed []LockedTool) (offered []LockedTool) {
	for _, t := range listed {
		if s.Offers(t.Name) {
			offered = append(offered, t)
		}
	}
	return offered
}

// CheckTools returns the problem of the tools that the agent gets from the server, "" without one: a pattern without a match,
// too many or too large tools, or a name that models do not accept or that is taken. It adds the names for models to taken.
func (s *MCPServer) CheckTools(listed []LockedTool, taken map[string]bool) string {
	for _, pattern := range slices.Concat(s.Tools, s.Exclude, s.Idempotent) {
		if !slices.ContainsFunc(listed, func(t LockedTool) bool { return matchesPattern(pattern, t.Name) }) {
			return fmt.Sprintf("the MCP server %q has no tool that matches %q; correct it", s.Name, pattern)
		}
	}
	offered := s.Select(listed)
	if len(offered) > MaxMCPTools {
		return fmt.Sprintf("the MCP server %q offers %d tools, at most %d are allowed; name the tools that the agent needs in \"tools\"",
			s.Name, len(offered), MaxMCPTools)
	}
	size := 0
	for _, t := range offered {
		name, problem := s.ToolName(t.Name), t.Problem()
		size += t.Size()
		switch {
		case problem != "":
			return fmt.Sprintf("the MCP server %q has a tool %.64q that agents cannot get: %s; leave it out with \"exclude\"", s.Name, t.Name, problem)
		case size > MaxMCPListSize:
			return fmt.Sprintf("the MCP server %q offers tools with more than %d bytes; name the tools that the agent needs in \"tools\"",
				s.Name, MaxMCPListSize)
		case len(name) > maxToolName:
			return fmt.Sprintf("the MCP server %q has a tool whose name has more than %d bytes with its prefix, %.40q…; leave it out with \"exclude\"",
				s.Name, maxToolName, t.Name)
		case taken[name]:
			return fmt.Sprintf("the agent has two tools with the name %q, one of them from the MCP server %q; set its \"prefix\"", name, s.Name)
		}
		taken[name] = true
	}
	return ""
}

// VouchesFor reports whether the repository says that a repeated call of a tool has no other effect than one call.
func (s *MCPServer) VouchesFor(tool string) bool { return matchesAny(s.Idempotent, tool) }

// notInToolName matches the characters that names of tools for models cannot have.
var notInToolName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// ToolName returns the name of a tool for models: the prefix and the tool's name at the server, with _ for each character
// that models do not accept. It may be too long.
func (s *MCPServer) ToolName(tool string) string {
	return s.Prefix + notInToolName.ReplaceAllString(tool, "_")
}

// MayHaveTool reports whether a tool of the server may have a name for models. Only the server knows its tools.
func (s *MCPServer) MayHaveTool(name string) bool {
	tool, found := strings.CutPrefix(name, s.Prefix)
	if !found {
		return false
	}
	return len(s.Tools) == 0 || slices.ContainsFunc(s.Tools, func(pattern string) bool {
		return matchesPattern(notInToolPattern.ReplaceAllString(pattern, "_"), tool)
	})
}

// notInToolPattern matches the characters of a pattern that ToolName replaces.
var notInToolPattern = regexp.MustCompile(`[^A-Za-z0-9_*-]`)

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matchesPattern(pattern, name) })
}

// matchesPattern reports whether a name matches a pattern. * stands for any characters.
func matchesPattern(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	rest, found := strings.CutPrefix(name, parts[0])
	if !found || len(parts) == 1 {
		return found && rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// contextReference matches ${context.NAME}, and $${, which is literal.
var contextReference = regexp.MustCompile(`\$\$\{|\$\{context\.([A-Za-z_][A-Za-z0-9_-]*)\}`)

// UsesContext reports whether a text contains values of the run's context.
func UsesContext(text string) bool {
	return slices.ContainsFunc(contextReference.FindAllString(text, -1), func(found string) bool { return found != "$${" })
}

// ExpandContext replaces ${context.NAME} in a text by the values of fromContext, and variables as e does. Values are not
// expanded again. missing is the name of a value that fromContext does not know, "" for none.
func ExpandContext(text string, e *expand.Expansion, fromContext func(name string) (string, bool)) (expanded, missing string, err error) {
	var out strings.Builder
	rest := 0
	for _, at := range contextReference.FindAllStringSubmatchIndex(text, -1) {
		if at[2] < 0 {
			continue // A literal ${, which e handles.
		}
		literal, err := e.Text(text[rest:at[0]])
		if err != nil {
			return "", "", err
		}
		value, known := fromContext(text[at[2]:at[3]])
		if !known {
			missing = text[at[2]:at[3]]
		}
		out.WriteString(literal + value)
		rest = at[1]
	}
	literal, err := e.Text(text[rest:])
	out.WriteString(literal)
	return out.String(), missing, err
}

// checkMCPServers checks the servers of an agent.
func (p *repoParser) checkMCPServers(a *Agent) {
	if len(a.MCPServers) > MaxMCPServers {
		p.problems.add(a.At("mcp_servers"), `"mcp_servers" may name at most %d servers`, MaxMCPServers)
	}
	names := map[string]bool{}
	for i := range a.MCPServers {
		s := &a.MCPServers[i]
		at := a.AtServer(i)
		if names[s.Name] && s.Name != "" {
			p.problems.add(at, "the agent has two servers with the name %q; choose another name", s.Name)
		}
		names[s.Name] = true
		if s.Required != nil && !s.IsPinned() {
			p.problems.add(at, `%q: "required" has no effect with "discovery: live", because the build does not connect to the server; remove it`, s.Name)
		}
		if s.OAuth != nil && s.OAuthApp != "" {
			p.problems.add(at, `%q has "oauth" and "oauth_app"; keep one`, s.Name)
		}
		p.checkMCPHeaders(at, s)
		for _, text := range s.variableTexts() {
			if err := expand.Check(text); err != nil {
				p.problems.add(at, "%q: a value %v", s.Name, err)
			}
		}
	}
}

// variableTexts returns the texts that may contain variables, except headers.
func (s *MCPServer) variableTexts() []string {
	out := []string{s.URL}
	if s.OAuth != nil {
		out = append(out, s.OAuth.ClientID, s.OAuth.ClientSecret, s.OAuth.TokenURL)
	}
	return out
}

// checkMCPHeaders checks the headers of a server.
func (p *repoParser) checkMCPHeaders(at Position, s *MCPServer) {
	headers := maps.Clone(s.Headers)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lower := strings.ToLower(name)
		switch {
		case strings.HasPrefix(lower, "mcp-") || lower == "accept" || lower == "last-event-id":
			p.problems.add(at, "%q has the header %q, which the protocol sets: remove it", s.Name, name)
		case lower == "authorization" && s.OAuth != nil:
			p.problems.add(at, `%q has "oauth" and the header "Authorization"; keep one`, s.Name)
		case lower == "authorization" && s.OAuthApp != "":
			p.problems.add(at, `%q has "oauth_app" and the header "Authorization"; keep one`, s.Name)
		}
		known := func(string) (string, bool) { return "", true }
		if _, _, err := ExpandContext(headers[name], &expand.Expansion{Lookup: known}, known); err != nil {
			p.problems.add(at, "%q %v, in the value of %q", s.Name, err, name)
		}
		if expand.Names(headers[name]) {
			headers[name] = ""
		}
	}
	for _, wrong := range connector.CheckHeaders(headers) {
		p.problems.add(at, "%q %s", s.Name, wrong.Problem)
	}
}

// linkMCPServers reports a name that stands for different servers.
func (p *repoParser) linkMCPServers() {
	first := map[string]*Agent{}
	servers := map[string]*MCPServer{}
	for _, a := range p.project.Agents {
		for i := range a.MCPServers {
			s := &a.MCPServers[i]
			if servers[s.Name] == nil {
				servers[s.Name], first[s.Name] = s, a
			} else if !servers[s.Name].isSameServer(s) {
				p.problems.add(a.AtServer(i), `the server %q has another "url", "headers", "oauth", "oauth_app" or "discovery" in agent %q; choose another name, or write it once into agents/%s`,
					s.Name, first[s.Name].Name, defaultsFile)
			}
		}
	}
}

// isSameServer reports whether requests to both servers are the same.
func (s *MCPServer) isSameServer(other *MCPServer) bool {
	sameAuth := (s.OAuth == nil) == (other.OAuth == nil)
	if sameAuth && s.OAuth != nil {
		a, b := *s.OAuth, *other.OAuth
		sameAuth = slices.Equal(a.Scopes, b.Scopes) && a.ClientID == b.ClientID && a.ClientSecret == b.ClientSecret && a.TokenURL == b.TokenURL
	}
	return sameAuth && s.OAuthApp == other.OAuthApp && s.URL == other.URL && maps.Equal(s.Headers, other.Headers) && s.IsPinned() == other.IsPinned()
}

// AtServer returns the position of an MCP server of the agent, which may be in a file of defaults.
func (a *Agent) AtServer(i int) Position {
	if list := a.source.findNode("mcp_servers"); list != nil && i < len(list.items) {
		return list.items[i].pos
	}
	return a.At("mcp_servers")
}
