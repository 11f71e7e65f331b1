// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/displayname"
	"github.com/agentplatform/agentplatform/internal/expand"
)

// Connector is a connector that the repository defines. Texts of the configuration may contain ${NAME}. They keep it
// here, and the environment's variables replace it later.
type Connector struct {
	Type string `yaml:"type" required:"true" enum:"{type names}" example:"webhook" doc:"Type of the connector: {types}."`
	// Mode is never empty: a type with one mode has it without the key.
	Mode string `yaml:"mode" enum:"{mode names}" example:"inbound" doc:"Mode of a webhook: {modes}. Required for a webhook. A cron connector is 'inbound'."`
	// DisplayName is Key without the key.
	DisplayName string `yaml:"name" without:"the stem of the file" doc:"Name for people, at most 63 characters."`
	// Enabled is true without the key.
	Enabled bool `yaml:"enabled" doc:"Whether the connector takes events."`
	// Config depends on type and mode; the other keys are empty.
	Config connector.Config `yaml:"config" doc:"Settings of the type and mode."`
	// Agents are linked with default settings; see AllLinks.
	Agents []string `yaml:"agents" doc:"Names of the agents that are linked with default settings."`
	Links  []Link   `yaml:"links" doc:"Agents that are linked with settings of their own."`

	// Key is the stem of the file and the identity of the connector.
	Key string
	// SourcePath is the file.
	SourcePath string

	source *node
}

// configType has the keys of config.
var configType = reflect.TypeFor[connector.Config]()

// Link connects an agent.
type Link struct {
	Agent         string            `yaml:"agent" required:"true" example:"support" doc:"Name of the agent."`
	FilesRequired bool              `yaml:"files_required" doc:"Fails the agent's runs of an event before they start if it has no attachment, or an attachment was omitted."`
	Outbound      *connector.Policy `yaml:"outbound" doc:"Which results of the agent an outbound connector sends."`
}

// AllLinks returns the links of both ways to write them, in order.
func (c *Connector) AllLinks() []Link {
	links := make([]Link, 0, len(c.Agents)+len(c.Links))
	for _, name := range c.Agents {
		links = append(links, Link{Agent: name})
	}
	return append(links, c.Links...)
}

// At returns the position of a key, or of the file if the key is missing.
func (c *Connector) At(key string) Position {
	if e := c.source.findEntry(key); e != nil {
		return e.pos
	}
	return Position{File: c.SourcePath, Line: 1, Column: 1}
}

// atLinkMode returns the position of outbound.mode of an item of links.
func (c *Connector) atLinkMode(i int) Position {
	if links := c.source.findNode("links"); links != nil && i < len(links.items) {
		if mode := links.items[i].findNode("outbound", "mode"); mode != nil {
			return mode.pos
		}
	}
	return c.At("links")
}

// atConfig returns the position of a key of config, or of config if the key is missing.
func (c *Connector) atConfig(key string) Position {
	if config := c.source.findNode("config"); config != nil {
		if e := config.findEntry(key); e != nil {
			return e.pos
		}
	}
	return c.At("config")
}

// ParseConnector validates the file connectors/<key>.yaml like Parse, in a repository with agents of these names.
// The error is Problems.
func ParseConnector(key string, content []byte, agents []string) (*Connector, error) {
	file := "connectors/" + key + ".yaml"
	p := &repoParser{files: Files{file: content}, project: &Project{byName: make(map[string]*Agent, len(agents))}}
	for _, name := range agents {
		p.project.byName[name] = &Agent{Name: name}
	}
	p.parseConnector(file)
	for _, c := range p.project.Connectors {
		p.linkConnector(c)
	}
	if err := p.problems.errorOrNil(); err != nil {
		return nil, err
	}
	return p.project.Connectors[0], nil
}

// Unsupported returns the problems of keys and values that this release rejects, or that a file cannot ask for.
func (c *Connector) Unsupported() (problems Problems) {
	problems.addUnsupported(c.source, reflect.TypeOf(c), "")
	if required := c.Config.RequireAuthentication; c.Config.Authentication == connector.AuthenticationNone || required != nil && !*required {
		problems.add(c.At("config"), "a file cannot define a webhook without authentication, because its URL would be the only secret and "+
			"follows from names; create the connector by the REST API or kubectl")
	}
	return problems
}

func (p *repoParser) parseConnector(file string) {
	source := p.parseYAMLFile(file)
	if source == nil {
		return
	}
	if p.connectors += len(p.files[file]); p.connectors > MaxConnectorsSize || len(p.project.Connectors) >= MaxConnectors {
		p.problems.add(Position{File: "connectors"}, "more than %d connectors, or files of more than %d KiB together",
			MaxConnectors, MaxConnectorsSize>>10)
		return
	}
	c := &Connector{Key: fileStem(file), SourcePath: file, Enabled: true, source: source}
	p.decoder().decode(source, c, "")
	if source.kind != kindMap {
		return
	}
	if strings.Count(file, "/") != 1 {
		p.problems.add(Position{File: file}, "a connector must be directly in connectors/; move the file up")
	}
	if !dnsLabel40.MatchString(c.Key) {
		p.problems.add(Position{File: file},
			"the name of a connector's file must be at most 40 lower-case letters, digits and inner dashes; rename it")
	}
	p.checkConnector(c)
	p.project.Connectors = append(p.project.Connectors, c)
}

// Kind returns the kind of the connector, or "" if type or mode are invalid.
func (c *Connector) Kind() connector.Kind { return connector.KindOf(c.Type, c.Mode) }

func (p *repoParser) checkConnector(c *Connector) {
	switch kinds := connector.KindsOf(c.Type); {
	case len(kinds) == 1:
		if mode := kinds[0].Mode(); c.Mode != "" && c.Mode != mode {
			p.problems.add(c.At("mode"), `a %s is always %s; remove "mode"`, kinds[0].Noun(), mode)
		}
		c.Mode = kinds[0].Mode()
	case len(kinds) > 1 && c.Mode == "":
		p.problems.add(c.At("mode"), `missing key "mode", which type %s requires; write mode: %s`, c.Type, kinds[0].Mode())
	}
	if c.Kind() == "" {
		return // reported above or by the decoder
	}
	p.checkConfigKeys(c)
	p.checkConnectorConfig(c)
	p.checkTitle(c)
	if len(c.AllLinks()) > MaxConnectorLinks {
		p.problems.add(c.At("links"), "the connector has more than %d links, the maximum number of runs that an event may start",
			MaxConnectorLinks)
	}
	if p.links += len(c.AllLinks()); p.links > MaxAllLinks {
		p.problems.add(Position{File: "connectors"}, "the connectors have more than %d links together", MaxAllLinks)
	}
	seen := map[string]bool{}
	for _, l := range c.AllLinks() {
		if seen[l.Agent] {
			p.problems.add(c.At("links"), "agent %q is linked twice; keep one", l.Agent)
		}
		seen[l.Agent] = true
		p.checkLink(c, l)
	}
}

func (p *repoParser) checkTitle(c *Connector) {
	if expand.Names(c.DisplayName) || utf8.RuneCountInString(c.DisplayName) > displayname.MaxLength {
		p.problems.add(c.At("name"), `"name" must be at most %d characters without ${`, displayname.MaxLength)
	} else if problem := displayname.Problem(c.DisplayName); problem != "" && c.DisplayName != "" {
		p.problems.add(c.At("name"), `"name" %s`, problem)
	}
}

// configKeys returns the keys of config for a kind.
func configKeys(kind connector.Kind) (keys []string) {
	for _, f := range kind.Fields() {
		keys = append(keys, f.Name)
	}
	return keys
}

// checkConfigKeys reports keys of config that belong to another kind.
func (p *repoParser) checkConfigKeys(c *Connector) {
	config := c.source.findNode("config")
	if config == nil {
		return
	}
	keys := configKeys(c.Kind())
	for _, e := range config.entries {
		if fieldsOf(configType).byName[e.key] != nil && !slices.Contains(keys, e.key) {
			p.problems.add(e.pos, "%q is not for %s connectors; their keys are %s", e.key, c.Kind(), strings.Join(keys, ", "))
		}
	}
}

// checkConnectorConfig checks the settings of a connector. The deployment checks texts with ${NAME}, which have placeholders here.
func (p *repoParser) checkConnectorConfig(c *Connector) {
	config := c.Config
	for _, f := range c.Kind().Fields() {
		if f.Variables == "" {
			continue
		}
		switch value := f.In(&config).Addr().Interface().(type) {
		case *string:
			if err := expand.Check(*value); err != nil {
				p.problems.add(c.atConfig(f.Name), "%q %v", f.Name, err)
			}
			if expand.Names(*value) { // A text without an example has its length as written, as in the mirror of the file.
				*value = cmp.Or(f.Default, f.Example, *value)
			}
		case *map[string]string:
			*value = p.checkMapTexts(c, f.Name, *value)
		case *json.RawMessage:
			none := expand.Expansion{Lookup: func(string) (string, bool) { return "", false }}
			if _, err := none.JSON(*value); len(*value) > 0 && err != nil {
				p.problems.add(c.atConfig(f.Name), "%q %v", f.Name, err)
			}
		}
	}
	for _, problem := range c.Kind().CheckRules(config) {
		p.problems.add(c.atConfig(problem.Field), "%q %s", problem.Field, problem.Problem)
	}
}

// checkMapTexts returns the texts of a key, with empty values in place of values with ${NAME}.
func (p *repoParser) checkMapTexts(c *Connector, key string, texts map[string]string) map[string]string {
	texts = maps.Clone(texts)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if err := expand.Check(texts[name]); err != nil {
			p.problems.add(c.atConfig(key), `%q %v, in the value of %q`, key, err, name)
		}
		if expand.Names(texts[name]) {
			texts[name] = ""
		}
	}
	return texts
}

func (p *repoParser) checkLink(c *Connector, l Link) {
	if l.FilesRequired && c.Kind().Sends() {
		p.problems.add(c.At("links"), `"files_required" is for links of %s connectors; remove it`, connector.NamesOf(connector.Kind.StartsRuns, "and"))
	}
	if l.Outbound == nil {
		return
	}
	if !c.Kind().Sends() {
		p.problems.add(c.At("links"), `"outbound" is for links of outbound connectors; remove it`)
	}
	for _, problem := range validPolicy(*l.Outbound).Check() {
		p.problems.add(c.At("links"), `"outbound.%s" %s`, problem.Field, problem.Problem)
	}
}

// linkNames rejects connectors with the same name in any case of letters: an environment has each name once.
func (p *repoParser) linkNames() {
	files := map[string]string{} // by name
	for _, c := range p.project.Connectors {
		name := strings.ToLower(c.Title())
		if other, taken := files[name]; taken {
			p.problems.add(c.At("name"), `%s has the name %q already; choose another "name"`, other, c.Title())
			continue
		}
		files[name] = c.SourcePath
	}
}

// linkConnector checks the references of a connector to agents.
func (p *repoParser) linkConnector(c *Connector) {
	for _, name := range c.Agents {
		p.linkAgentName(c.At("agents"), name)
	}
	for _, l := range c.Links {
		if l.Agent != "" {
			p.linkAgentName(c.At("links"), l.Agent)
		}
	}
}
