// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// API configures the calls of an OpenAPI document.
type API struct {
	BaseURL string   `yaml:"base_url" variables:"any" form:"url" without:"the first server of the document" example:"'${SHOP_URL}'" doc:"URL that the paths of the operations continue, http or https. It may contain variables of the environment, as '${NAME}'."`
	Auth    *APIAuth `yaml:"auth" doc:"Credentials of each request: one of 'bearer', 'header', 'basic' and 'oauth_app'."`
}

// APIAuth has the credentials of requests.
type APIAuth struct {
	Bearer   string            `yaml:"bearer" variables:"any" example:"'${SHOP_TOKEN}'" doc:"Token of the header 'Authorization: Bearer'. Use a sensitive variable."`
	Header   map[string]string `yaml:"header" variables:"any" doc:"Headers with credentials, such as '{X-Key: ${SHOP_KEY}}'. Use sensitive variables."`
	Basic    *APIBasic         `yaml:"basic" doc:"User name and password (HTTP Basic)."`
	OAuthApp string            `yaml:"oauth_app" form:"label" doc:"OAuth app of the environment whose access token is sent."`
}

// APIBasic has the credentials of HTTP Basic authentication.
type APIBasic struct {
	Username string `yaml:"username" variables:"any" required:"true" example:"'${SHOP_USER}'" doc:"User name."`
	Password string `yaml:"password" variables:"any" required:"true" example:"'${SHOP_PASSWORD}'" doc:"Password. Use a sensitive variable."`
}

// apiAccess is an API with parsed texts.
type apiAccess struct {
	base    Template
	headers []HTTPField
	basic   *[2]Template
	app     string
}

// ForAgent returns the tool with the base URL and the credentials that an agent has for the tool's document. A tool of a
// file in tools/ is the same for all agents.
func (t *HTTPTool) ForAgent(a *Agent) *HTTPTool {
	access := a.access[t.API]
	if t.API == "" || access == nil {
		return t
	}
	own := *t
	if access.base != nil {
		own.BaseURL = access.base
	}
	own.Headers, own.BasicAuth, own.OAuthApp = mergeHeaders(t.Headers, access.headers), access.basic, access.app
	return &own
}

// linkAPIs parses the key apis of an agent.
func (p *repoParser) linkAPIs(a *Agent) {
	a.access = map[string]*apiAccess{}
	for _, name := range slices.Sorted(maps.Keys(a.APIs)) {
		n := a.source.findNode("apis", name)
		if p.apis[name] == nil {
			p.problems.add(a.At("apis", name), "%q needs the file %s/%s.yaml or %s/%s.json, which does not exist", "apis."+name, apiFolder, name, apiFolder, name)
			continue
		}
		c := &toolCompiler{problems: &p.problems, path: "apis." + name}
		api, access := a.APIs[name], &apiAccess{}
		a.access[name] = access
		if api.BaseURL != "" {
			base := n.findNode("base_url")
			access.base = c.parseText(base, c.keyPath("base_url"), api.BaseURL)
			c.checkBaseURL(base, access.base)
		}
		if api.Auth != nil {
			p.linkAuth(c, n.findNode("auth"), api.Auth, access)
		}
	}
}

// linkAuth parses the credentials of an API.
func (p *repoParser) linkAuth(c *toolCompiler, n *node, auth *APIAuth, access *apiAccess) {
	count := 0
	if auth.Bearer != "" {
		count++
		token := c.parseText(n.findNode("bearer"), c.keyPath("auth.bearer"), auth.Bearer)
		access.headers = []HTTPField{{Name: "Authorization", Value: append(Template{{Text: "Bearer "}}, token...)}}
	}
	if len(auth.Header) > 0 {
		count++
		for _, f := range c.parseHeaders(n.findNode("header"), c.keyPath("auth.header")) {
			access.headers = append(access.headers, HTTPField{Name: textproto.CanonicalMIMEHeaderKey(f.Name), Value: f.Value})
		}
	}
	if auth.Basic != nil {
		count++
		access.basic = &[2]Template{
			c.parseText(n.findNode("basic", "username"), c.keyPath("auth.basic.username"), auth.Basic.Username),
			c.parseText(n.findNode("basic", "password"), c.keyPath("auth.basic.password"), auth.Basic.Password),
		}
	}
	if access.app = auth.OAuthApp; access.app != "" {
		count++
	}
	if count != 1 {
		p.problems.add(n.pos, `%q needs one of "bearer", "header", "basic" and "oauth_app"`, c.keyPath("auth"))
	}
	for _, f := range access.headers {
		if !httpguts.ValidHeaderFieldValue(f.Value.literalText("")) {
			p.problems.add(n.pos, "%q has a line break or another control character, which no header can have", c.keyPath("auth"))
		}
	}
}

// checkAPITool checks a reference to operations of a document, and builds their tools. A wildcard leaves out operations
// that agents cannot call.
func (p *repoParser) checkAPITool(a *Agent, at Position, reference string) {
	name, operation, ok := apiReference(reference)
	d := p.apis[name]
	switch {
	case !ok:
		p.problems.add(at, "%q is not a tool; write api:<name>.<operationId>, or api:<name>.* for all operations", reference)
		return
	case d == nil:
		if !p.hasFile(apiFolder+"/"+name+".yaml") && !p.hasFile(apiFolder+"/"+name+".json") {
			p.problems.add(at, "tool %q needs the file %s/%s.yaml or %s/%s.json, which does not exist", reference, apiFolder, name, apiFolder, name)
		}
		return // The problems of the file are reported.
	case d.server == "" && (a.access[name] == nil || a.access[name].base == nil):
		p.problems.add(at, "tool %q needs a base URL, because %s names no server with an http or https URL; add apis: {%s: {base_url: …}}", reference, d.file, name)
	}
	prefix, isWildcard := strings.CutSuffix(operation, wildcard)
	built, reason := 0, "has no such operation"
	for _, o := range d.operations {
		if o.id != operation && !(isWildcard && strings.HasPrefix(o.id, prefix)) {
			continue
		}
		if err := p.addAPITool(d, o); err != nil {
			reason = "has the operation, but agents cannot call it: " + strings.ReplaceAll(err.Error(), "\n", "; ")
			continue
		}
		built++
	}
	if built == 0 {
		p.problems.add(at, "tool %q: %s %s", reference, d.file, reason)
	}
}

// addAPITool builds the tool of an operation once.
func (p *repoParser) addAPITool(d *apiDocument, o apiOperation) error {
	reference := apiPrefix + d.name + "." + o.id
	if p.project.httpTools[reference] != nil {
		return nil
	}
	if len(p.project.httpTools) >= MaxHTTPTools {
		p.problems.add(Position{File: d.file}, "more than %d tools in tools/ and apis/ together", MaxHTTPTools)
		return nil
	}
	t, err := d.buildTool(o)
	if err != nil {
		return err
	}
	if d.server != "" {
		t.BaseURL = Template{{Text: d.server}}
	}
	p.project.httpTools[reference] = t
	return nil
}
