// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/agentplatform/agentplatform/internal/expr"
)

var (
	// requestLine is the form of a request: method and path.
	requestLine = regexp.MustCompile(`^([A-Z]+) +(/\S*)$`)
	// methods are the methods of requests.
	methods = []string{
		http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	}
	// connectionHeaders belong to the connection or to the platform, so no tool can set them.
	connectionHeaders = []string{
		"Connection", "Content-Length", "Content-Encoding", "Accept-Encoding", "Expect", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Proxy-Authorization", "Proxy-Connection", "Traceparent", "Tracestate",
	}
	// pathText is the form of the literal parts of a path.
	pathText = regexp.MustCompile(`^(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$`)
)

// parseToolFile parses a file with HTTP tools.
func (p *repoParser) parseToolFile(file string) {
	source := p.parseYAMLFile(file)
	if source == nil {
		return
	}
	f := newToolFile(file, source)
	p.decoder().decode(source, &f, "")
	if source.kind != kindMap {
		return
	}
	p.project.toolFiles = append(p.project.toolFiles, source)
	prefix := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(file, "tools/"), ".yaml"), "/", ".")
	if !codeName.MatchString(prefix + ".x") {
		p.problems.add(Position{File: file}, "the names of the file and its folders have letters, digits, _ and -, and no digit first, because agents name its tools by them; rename it")
		return
	}
	if script := strings.TrimSuffix(file, ".yaml") + ".star"; p.hasFile(script) {
		p.problems.add(Position{File: file}, "%s has the same name, so agents cannot tell their tools apart; rename one of them", script)
	}
	common := &toolCompiler{problems: &p.problems}
	base := common.parseText(source.findNode("base_url"), "base_url", f.BaseURL)
	common.checkBaseURL(source.findNode("base_url"), base)
	headers := common.parseHeaders(source.findNode("headers"), "headers")
	appAt := source.findNode("oauth_app")
	tools := source.findNode("tools")
	for _, name := range slices.Sorted(maps.Keys(f.Tools)) {
		if len(p.project.httpTools) >= MaxHTTPTools {
			p.problems.add(Position{File: file}, "more than %d tools in tools/ and apis/ together", MaxHTTPTools)
			return
		}
		e := tools.findEntry(name)
		t := &HTTPTool{
			Reference: prefix + "." + name, Name: ModelToolName(prefix + "." + name), BaseURL: base, Headers: headers, OAuthApp: f.OAuthApp, Timeout: f.Timeout.Std(), at: e.pos,
		}
		switch {
		case f.Tools[name] == nil:
			p.problems.add(e.pos, "%q is empty; write its description and request", "tools."+name)
			continue
		case !argumentName.MatchString(name):
			p.problems.add(e.pos, "%q: the name of a tool has at most 64 letters, digits, _ and -, and no digit first", "tools."+shortName(name))
		case len(t.Name) > maxToolName:
			p.problems.add(e.pos, "the name %q of the tool for models has more than %d characters; shorten the name of the tool, the file or a folder", t.Name, maxToolName)
		}
		c := &toolCompiler{problems: &p.problems, path: "tools." + name, source: e.value, request: f.Tools[name], tool: t}
		c.compileTool()
		if appAt != nil {
			t.appAt = appAt.pos
		}
		if t.OAuthApp != "" && slices.ContainsFunc(t.Headers, func(h HTTPField) bool { return h.Name == "Authorization" }) {
			p.problems.add(t.appAt, `"oauth_app" and the header "Authorization" of the tool %q exclude each other; remove one`, name)
		}
		p.project.httpTools[t.Reference] = t
	}
}

// toolCompiler checks one tool and fills its HTTPTool. For the keys of the file it has no tool.
type toolCompiler struct {
	problems *Problems
	path     string
	source   *node
	request  *ToolRequest
	tool     *HTTPTool
	used     []string
}

func (c *toolCompiler) compileTool() {
	r, t := c.request, c.tool
	t.Description, t.Parameters, t.Defaults = r.Description, r.Parameters.Schema, r.Parameters.Defaults
	if t.Parameters == nil {
		t.Parameters = map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
	}
	c.compileRequest()
	t.Query = c.parseFields(c.source.findNode("query"), c.keyPath("query"))
	t.Form = c.parseFields(c.source.findNode("form"), c.keyPath("form"))
	t.Headers = mergeHeaders(t.Headers, c.parseHeaders(c.source.findNode("headers"), c.keyPath("headers")))
	if body := c.source.findNode("json"); body != nil && !body.isNull() {
		t.Body = c.parseBody(body, c.keyPath("json"))
	}
	t.Idempotent = r.Idempotent || t.IsRead()
	switch {
	case t.Body != nil && t.Form != nil:
		c.problems.add(c.source.findEntry("form").pos, "%q and %q cannot be used together; remove one", c.keyPath("json"), c.keyPath("form"))
	case t.IsRead() && (t.Body != nil || t.Form != nil):
		c.problems.add(c.source.findEntry("request").pos, "%q: a %s request has no body; use query", c.keyPath("request"), t.Method)
	}
	c.compileResult()
	c.checkUnused()
}

// keyPath returns the path of a key of the tool, or of the file.
func (c *toolCompiler) keyPath(key string) string { return joinPath(c.path, key) }

func (c *toolCompiler) compileRequest() {
	n := c.source.findNode("request")
	if n == nil || c.request.Request == "" {
		return // reported already
	}
	parts := requestLine.FindStringSubmatch(c.request.Request)
	switch {
	case parts == nil:
		c.problems.add(n.pos, "%q must be a method and a path, such as GET /orders/{order}", c.keyPath("request"))
		return
	case !slices.Contains(methods, parts[1]):
		c.problems.add(n.pos, "%q: the method must be one of %s", c.keyPath("request"), strings.Join(methods, ", "))
		return
	}
	c.tool.Method, c.tool.Path = parts[1], c.parseText(n, c.keyPath("request"), parts[2])
	literal := c.tool.Path.literalText("")
	switch {
	case strings.ContainsAny(literal, "?#"):
		c.problems.add(n.pos, "%q: the path has no ? and no #; use query", c.keyPath("request"))
	case !pathText.MatchString(literal):
		c.problems.add(n.pos, "%q: the path has characters that a URL must escape", c.keyPath("request"))
	case slices.ContainsFunc(strings.Split(c.tool.Path.literalText("x"), "/"), func(s string) bool { return s == "." || s == ".." }):
		c.problems.add(n.pos, "%q: the path has a segment . or ..; write the path without it", c.keyPath("request"))
	}
	required, _ := c.tool.Parameters["required"].([]any)
	for _, name := range c.tool.Path.Arguments() {
		if _, hasDefault := c.tool.Defaults[name]; !hasDefault && c.isParameter(name) && !slices.Contains(required, any(name)) {
			c.problems.add(n.pos, "%q: the parameter %q is part of the path, so it must be required or have a default", c.keyPath("request"), name)
		}
	}
}

// parseText parses a text with placeholders, and reports unknown ones.
func (c *toolCompiler) parseText(n *node, path, text string) Template {
	if n == nil {
		return nil
	}
	t, err := ParseTemplate(text)
	if err != nil {
		c.problems.add(n.pos, "%q %v", path, err)
		return nil
	}
	for _, name := range t.Arguments() {
		switch {
		case c.tool == nil:
			c.problems.add(n.pos, "%q has {%s}, but all tools of the file share it; only variables such as ${NAME} are allowed", path, name)
		case !c.isParameter(name):
			c.problems.add(n.pos, "%q has {%s}, which is no parameter of the tool; add it to parameters or correct the name", path, name)
		}
		c.used = append(c.used, name)
	}
	return t
}

// isParameter reports whether the tool has a parameter.
func (c *toolCompiler) isParameter(name string) bool {
	properties, _ := c.tool.Parameters["properties"].(map[string]any)
	_, has := properties[name]
	return has
}

// parseFields parses the values of a map of texts, in the order of the file.
func (c *toolCompiler) parseFields(n *node, path string) (fields []HTTPField) {
	if n == nil || n.kind != kindMap {
		return nil
	}
	for _, e := range n.entries {
		text, isText := e.value.scalar.(string)
		if !isText {
			continue // reported already, or null
		}
		if strings.ContainsAny(e.key, "{}") || e.key == "" {
			c.problems.add(e.pos, "%q: a name must not be empty and has no placeholders", joinPath(path, e.key))
		}
		fields = append(fields, HTTPField{Name: e.key, Value: c.parseText(e.value, joinPath(path, e.key), text)})
	}
	return fields
}

// parseHeaders parses headers and checks their names.
func (c *toolCompiler) parseHeaders(n *node, path string) []HTTPField {
	fields := c.parseFields(n, path)
	for i := range fields {
		e := n.findEntry(fields[i].Name)
		name := textproto.CanonicalMIMEHeaderKey(fields[i].Name)
		switch {
		case !httpguts.ValidHeaderFieldName(fields[i].Name):
			c.problems.add(e.pos, "%q is not the name of a header", joinPath(path, e.key))
		case slices.Contains(connectionHeaders, name):
			c.problems.add(e.pos, "%q: the platform sets this header; remove it", joinPath(path, e.key))
		case !httpguts.ValidHeaderFieldValue(fields[i].Value.literalText("")):
			c.problems.add(e.value.pos, "%q has a line break or another control character, which no header can have", joinPath(path, e.key))
		}
		fields[i].Name = name
	}
	return fields
}

// mergeHeaders returns the headers of a file and of a tool. A header of the tool replaces one of the file.
func mergeHeaders(file, tool []HTTPField) []HTTPField {
	out := slices.DeleteFunc(slices.Clone(file), func(f HTTPField) bool {
		return slices.ContainsFunc(tool, func(own HTTPField) bool { return own.Name == f.Name })
	})
	return append(out, tool...)
}

// parseBody parses the texts of a JSON body.
func (c *toolCompiler) parseBody(n *node, path string) any {
	switch n.kind {
	case kindList:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = c.parseBody(item, path+"["+strconv.Itoa(i)+"]")
		}
		return list
	case kindMap:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = c.parseBody(e.value, joinPath(path, e.key))
		}
		return m
	}
	if text, isText := n.scalar.(string); isText {
		return c.parseText(n, path, text)
	}
	return n.scalar
}

// checkBaseURL checks a base URL. One with variables is checked when its values are known.
func (c *toolCompiler) checkBaseURL(n *node, base Template) {
	if n == nil || len(base) == 0 || base.hasVariable() {
		return
	}
	if problem := CheckBaseURL(base.literalText("")); problem != "" {
		c.problems.add(n.pos, `"base_url" %s`, problem)
	}
}

// CheckBaseURL returns the problem of a base URL, which continues its name, or "".
func CheckBaseURL(text string) (problem string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return "must be an http or https URL"
	case u.User != nil:
		return "must not have a user name or password; send them in a header"
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return "must not have a fragment"
	}
	return ""
}

// compileResult compiles result and on_status.
func (c *toolCompiler) compileResult() {
	if n := c.source.findNode("result"); c.request.Result != "" {
		compiled, err := expr.NewResponse(c.request.Result)
		if err != nil {
			c.problems.add(n.pos, "%q is not a valid CEL expression over status, headers and body: %v", c.keyPath("result"), err)
		}
		c.tool.Result = compiled
	}
	n := c.source.findNode("on_status")
	c.tool.OnStatus = map[int]string{}
	for _, code := range slices.Sorted(maps.Keys(c.request.OnStatus)) {
		status, err := strconv.Atoi(code)
		if err != nil || status < 200 || status > 599 || len(code) != 3 {
			c.problems.add(n.findEntry(code).pos, "%q: a status is a number between 200 and 599", joinPath(c.keyPath("on_status"), code))
			continue
		}
		if c.request.OnStatus[code] == "" {
			c.problems.add(n.findEntry(code).pos, "%q needs the text of the error", joinPath(c.keyPath("on_status"), code))
		}
		c.tool.OnStatus[status] = c.request.OnStatus[code]
	}
}

// checkUnused reports parameters that no part of the request has.
func (c *toolCompiler) checkUnused() {
	properties, _ := c.tool.Parameters["properties"].(map[string]any)
	parameters := c.source.findNode("parameters")
	if inner := parameters; inner != nil && inner.findNode("properties") != nil && inner.findNode("type") != nil && inner.findNode("type").kind == kindScalar {
		parameters = inner.findNode("properties")
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(c.used, name) {
			continue
		}
		at := c.source.pos
		if e := parameters.findEntry(name); e != nil {
			at = e.pos
		}
		c.problems.add(at, "the parameter %q of %q is never used; write {%s} into request, query, headers, json or form, or remove it", name, c.path, name)
	}
}
