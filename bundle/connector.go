// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/contextheader"
	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/internal/displayname"
	"github.com/agentplatform/agentplatform/internal/expand"
)

// Types and modes of connectors.
const (
	ConnectorWebhook = "webhook"
	ConnectorCron    = "cron"

	ModeInbound  = "inbound"
	ModeSync     = "sync"
	ModeOutbound = "outbound"
)

// Connector is a connector that the repository defines. Texts of the configuration may contain ${NAME}. They keep it
// here, and the environment's variables replace it later.
type Connector struct {
	Type string `yaml:"type" required:"true" enum:"webhook,cron" example:"webhook" doc:"Source of the events: requests to a URL, or a schedule."`
	// Mode is inbound for a cron connector.
	Mode string `yaml:"mode" enum:"inbound,sync,outbound" example:"inbound" doc:"Mode of a webhook: 'inbound' returns the IDs of the runs at once, 'sync' returns the answer of the agent, 'outbound' sends results. Required for a webhook. A cron connector is 'inbound'."`
	// DisplayName is Key without the key.
	DisplayName string `yaml:"name" without:"the stem of the file" doc:"Name for people, at most 63 characters."`
	// Enabled is true without the key.
	Enabled bool `yaml:"enabled" doc:"Whether the connector takes events."`
	// Config depends on type and mode; the other keys are empty.
	Config ConnectorConfig `yaml:"config" doc:"Settings of the type and mode."`
	// Agents are linked with default settings; see AllLinks.
	Agents []string `yaml:"agents" doc:"Names of the agents that are linked with default settings."`
	Links  []Link   `yaml:"links" doc:"Agents that are linked with settings of their own."`

	// Key is the stem of the file and the identity of the connector.
	Key string
	// SourcePath is the file.
	SourcePath string

	source *node
}

// ConnectorConfig holds the keys of all types and modes.
type ConnectorConfig struct {
	RequireAuthentication *bool             `yaml:"require_authentication" modes:"inbound,sync" doc:"Whether callers must authenticate. The key 'authentication' selects the method."`
	Authentication        string            `yaml:"authentication" modes:"inbound,sync" enum:"secret,none,github,gitlab,stripe,slack,standard_webhooks" without:"secret" doc:"How callers authenticate: by the secret of the connector, or by the signature of a provider."`
	ContextHeaders        []string          `yaml:"context_headers" modes:"inbound,sync" doc:"Names of up to 16 request headers that runs can read."`
	FilesRequired         *bool             `yaml:"files_required" modes:"inbound,sync" doc:"Fails the runs of an event before they start if it has no attachment, or an attachment was omitted."`
	TimeoutSeconds        *int              `yaml:"timeout_seconds" modes:"sync,outbound" min:"1" max:"900" without:"300 (sync), 15 (outbound)" doc:"Time limit in seconds: of a sync webhook for the answer, of an outbound webhook for an attempt (at most 60)."`
	URL                   string            `yaml:"url" variables:"any" modes:"outbound" doc:"URL that an outbound webhook sends results to. Required."`
	Headers               map[string]string `yaml:"headers" variables:"any" modes:"outbound" doc:"Headers of the requests with results."`
	Retry                 *DeliveryRetry    `yaml:"retry" modes:"outbound" doc:"Retries of failed deliveries."`
	Schedule              string            `yaml:"schedule" variables:"plain" modes:"cron" doc:"Schedule, as five fields of cron or a word such as '@hourly'. Required."`
	Timezone              string            `yaml:"timezone" variables:"plain" modes:"cron" without:"UTC" doc:"IANA name of the schedule's time zone."`
	MissedTicks           string            `yaml:"missed_ticks" modes:"cron" enum:"skip,latest" without:"skip" doc:"Handling of ticks that nothing could run: 'skip' drops them, 'latest' runs the newest one."`
	Prompt                string            `yaml:"prompt" variables:"plain" modes:"cron" doc:"Question to the agents."`
	Payload               any               `yaml:"payload" variables:"plain" modes:"cron" doc:"Data for the agents beside the prompt, as keys and values."`
}

// DeliveryRetry configures the retries of a delivery.
type DeliveryRetry struct {
	MaxAttempts     int   `yaml:"max_attempts" min:"1" max:"20" doc:"Maximum number of attempts."`
	ScheduleSeconds []int `yaml:"schedule_seconds" doc:"Delay before each attempt after the previous one, in seconds. The first is 0."`
}

var (
	connectorFields = fieldsOf(reflect.TypeFor[Connector]())
	configType      = reflect.TypeFor[ConnectorConfig]()
)

// Link connects an agent.
type Link struct {
	Agent         string        `yaml:"agent" required:"true" example:"support" doc:"Name of the agent."`
	FilesRequired bool          `yaml:"files_required" doc:"Fails the agent's runs of an event before they start if it has no attachment, or an attachment was omitted."`
	Outbound      *LinkOutbound `yaml:"outbound" doc:"Which results of the agent an outbound connector sends."`
}

// LinkOutbound is the policy of a link of an outbound connector.
type LinkOutbound struct {
	Mode             string   `yaml:"mode" enum:"automatic,agent_tool,middleware" without:"automatic" doc:"Trigger of a delivery: 'automatic' is the end of a run, 'agent_tool' a tool of the agent, 'middleware' a call of 'send_connector' in the agent's middleware."`
	ActionName       string   `yaml:"action_name" without:"send_to_ and the connector's name" doc:"Name of the tool, for the mode 'agent_tool'."`
	SourceConnectors []string `yaml:"source_connectors" without:"all" doc:"Connectors whose runs are sent, by the stems of their files."`
	Statuses         []string `yaml:"statuses" enum:"completed,failed,cancelled,delivery_failed" without:"completed" doc:"Final statuses of the runs to send. 'delivery_failed' reports deliveries that fail."`
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
	if required := c.Config.RequireAuthentication; c.Config.Authentication == "none" || required != nil && !*required {
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

func (p *repoParser) checkConnector(c *Connector) {
	switch {
	case c.Type == ConnectorWebhook && c.Mode == "":
		p.problems.add(c.At("mode"), `missing key "mode", which type webhook requires; write mode: inbound`)
		return
	case c.Type == ConnectorWebhook && !slices.Contains(connectorFields.byName["mode"].enum, c.Mode):
		return // The decoder has reported the mode.
	case c.Type == ConnectorWebhook:
	case c.Type == ConnectorCron:
		if c.Mode != "" && c.Mode != ModeInbound {
			p.problems.add(c.At("mode"), `a cron connector is always inbound; remove "mode"`)
		}
		c.Mode = ModeInbound
	default:
		return // The decoder has reported the type.
	}
	p.checkConfigKeys(c)
	switch {
	case c.Type == ConnectorCron:
		p.checkCron(c)
	case c.Mode == ModeOutbound:
		p.checkOutbound(c)
	default:
		p.checkCallable(c)
	}
	if expand.Names(c.DisplayName) || utf8.RuneCountInString(c.DisplayName) > displayname.MaxLength {
		p.problems.add(c.At("name"), `"name" must be at most %d characters without ${`, displayname.MaxLength)
	} else if problem := displayname.Problem(c.DisplayName); problem != "" && c.DisplayName != "" {
		p.problems.add(c.At("name"), `"name" %s`, problem)
	}
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

// configKeys returns the keys of config for a mode of webhooks, or for cron.
func configKeys(mode string) (keys []string) {
	for _, f := range fieldsOf(configType).ordered {
		if slices.Contains(f.modes, mode) {
			keys = append(keys, f.name)
		}
	}
	return keys
}

// checkConfigKeys reports keys of config that belong to another type or mode.
func (p *repoParser) checkConfigKeys(c *Connector) {
	mode, kind := c.Mode, c.Mode+" webhook"
	if c.Type == ConnectorCron {
		mode, kind = ConnectorCron, ConnectorCron
	}
	config := c.source.findNode("config")
	if config == nil {
		return
	}
	for _, e := range config.entries {
		if f := fieldsOf(configType).byName[e.key]; f != nil && !slices.Contains(f.modes, mode) {
			p.problems.add(e.pos, "%q is not for %s connectors; their keys are %s", e.key, kind, strings.Join(configKeys(mode), ", "))
		}
	}
}

// checkCallable checks the settings that inbound and sync webhooks share.
func (p *repoParser) checkCallable(c *Connector) {
	config := c.Config
	required, method := config.RequireAuthentication, config.Authentication
	if method != "" && required != nil && *required == (method == "none") {
		p.problems.add(c.atConfig("require_authentication"), `"require_authentication" contradicts "authentication"; remove one of them`)
	}
	if len(config.ContextHeaders) > contextheader.Max {
		p.problems.add(c.atConfig("context_headers"), `"context_headers" may name at most %d headers`, contextheader.Max)
	}
	for _, name := range config.ContextHeaders {
		if wrong := contextheader.Check(name); wrong != "" {
			p.problems.add(c.atConfig("context_headers"), "%q %s", name, wrong)
		}
	}
}

// checkCron checks the settings of a cron connector. The deployment checks texts with ${NAME}.
func (p *repoParser) checkCron(c *Connector) {
	config := c.Config
	if config.Schedule == "" {
		p.problems.add(c.At("config"), `a cron connector needs "schedule", such as "0 6 * * 1-5" or "@hourly"`)
	}
	if config.Schedule == "" || expand.Names(config.Schedule) {
		config.Schedule = "@daily"
	}
	if expand.Names(config.Timezone) {
		config.Timezone = ""
	}
	payload, err := json.Marshal(config.Payload)
	if err != nil {
		p.problems.add(c.atConfig("payload"), `"payload" must be a mapping with text as its keys`)
		return
	}
	p.checkVariables(c, payload)
	for _, wrong := range cron.Check(config.Schedule, config.Timezone, config.Prompt, payload) {
		p.problems.add(c.atConfig(string(wrong.Field)), "%q %s", wrong.Field, wrong.Problem)
	}
}

// checkVariables checks the ${NAME} in the texts of a cron connector.
func (p *repoParser) checkVariables(c *Connector, payload []byte) {
	for key, text := range map[string]string{"schedule": c.Config.Schedule, "timezone": c.Config.Timezone, "prompt": c.Config.Prompt} {
		if err := expand.Check(text); err != nil {
			p.problems.add(c.atConfig(key), "%q %v", key, err)
		}
	}
	none := expand.Expansion{Lookup: func(string) (string, bool) { return "", false }}
	if _, err := none.JSON(payload); err != nil {
		p.problems.add(c.atConfig("payload"), `"payload" %v`, err)
	}
}

func (p *repoParser) checkLink(c *Connector, l Link) {
	if l.FilesRequired && c.Mode == ModeOutbound {
		p.problems.add(c.At("links"), `"files_required" is for links of inbound, sync and cron connectors; remove it`)
	}
	if l.Outbound == nil {
		return
	}
	if c.Mode != ModeOutbound {
		p.problems.add(c.At("links"), `"outbound" is for links of outbound connectors; remove it`)
	}
	for _, wrong := range l.Outbound.validPolicy().Check() {
		p.problems.add(c.At("links"), `"outbound.%s" %s`, wrong.Field, wrong.Problem)
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
