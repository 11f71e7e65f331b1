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
	"github.com/agentplatform/agentplatform/internal/later"
)

// Types and modes of connectors.
const (
	ConnectorWebhook = "webhook"
	ConnectorCron    = "cron"

	ModeInbound  = "inbound"
	ModeSync     = "sync"
	ModeOutbound = "outbound"
)

// Connector is a connector that the repository defines. Text of the configuration may
// hold ${VAR}, which stays as it is here and is resolved from the environment's variables.
type Connector struct {
	Type string `yaml:"type" required:"true" enum:"webhook,cron" doc:"Where events come from: requests to a URL, or a schedule."`
	// Mode is inbound of a cron connector.
	Mode string `yaml:"mode" enum:"inbound,sync,outbound" doc:"Of a webhook: inbound answers with the ids of the runs at once, sync with what the agent answers, outbound sends results. A cron connector is inbound."`
	// DisplayName is Key without the key.
	DisplayName string `yaml:"name" doc:"Name for people, at most 63 characters; without it the file's name."`
	// Enabled is true without the key.
	Enabled bool `yaml:"enabled" doc:"Whether events are taken."`
	// Config depends on type and mode; the other keys are empty.
	Config ConnectorConfig `yaml:"config" doc:"What depends on type and mode."`
	// Agents are linked with default settings; see AllLinks.
	Agents []string `yaml:"agents" doc:"Names of the agents that are linked with nothing else to say."`
	Links  []Link   `yaml:"links" doc:"Agents that are linked with settings of their own."`

	// Key is the stem of the file and the identity of the connector.
	Key string
	// SourcePath is the file.
	SourcePath string

	source *node
}

// ConnectorConfig holds the keys of all types and modes.
type ConnectorConfig struct {
	// For webhooks, inbound and sync.
	RequireAuthentication *bool    `yaml:"require_authentication" doc:"Whether callers must prove themselves; authentication says how."`
	Authentication        string   `yaml:"authentication" enum:"secret,none,github,gitlab,stripe,slack,standard_webhooks" doc:"How callers prove themselves: by the connector's secret, or by the signature of a provider."`
	ContextHeaders        []string `yaml:"context_headers" doc:"Names of up to 16 headers of a request that runs see."`
	FilesRequired         *bool    `yaml:"files_required" doc:"Whether runs of an event without an attachment, or with one that was omitted, fail before they begin."`
	// TimeoutSeconds is for sync (1 to 900) and outbound.
	TimeoutSeconds *int `yaml:"timeout_seconds" min:"1" max:"900" doc:"How long a sync webhook waits for the answer, or an attempt of an outbound one may take, in seconds."`

	// For webhooks, outbound.
	URL     string            `yaml:"url" doc:"Where an outbound webhook sends results."`
	Headers map[string]string `yaml:"headers" doc:"Headers that are sent with results."`
	Retry   *DeliveryRetry    `yaml:"retry" doc:"How a delivery that failed is repeated."`

	// For cron.
	Schedule    string `yaml:"schedule" doc:"When, as five fields of cron or a word such as @hourly."`
	Timezone    string `yaml:"timezone" doc:"IANA name of the time zone of the schedule; UTC without it."`
	MissedTicks string `yaml:"missed_ticks" enum:"skip,latest" doc:"What becomes of ticks that came while nobody could run them: skip leaves them out, latest runs the newest, once."`
	Prompt      string `yaml:"prompt" doc:"What the agents are asked."`
	Payload     any    `yaml:"payload" doc:"What they are given beside it, as keys and values."`
}

// DeliveryRetry says how a delivery is repeated.
type DeliveryRetry struct {
	MaxAttempts     int   `yaml:"max_attempts" min:"1" max:"20" doc:"How many attempts there are."`
	ScheduleSeconds []int `yaml:"schedule_seconds" doc:"How long each attempt waits after the one before, in seconds; the first is 0."`
}

var configType = reflect.TypeFor[ConnectorConfig]()

// Link connects an agent.
type Link struct {
	Agent         string        `yaml:"agent" required:"true" doc:"Name of the agent."`
	FilesRequired bool          `yaml:"files_required" doc:"Whether its runs of an event without an attachment, or with one that was omitted, fail before they begin."`
	Outbound      *LinkOutbound `yaml:"outbound" doc:"Which results of the agent an outbound connector sends."`
}

// LinkOutbound is the policy of a link of an outbound connector.
type LinkOutbound struct {
	Mode             string   `yaml:"mode" enum:"automatic,agent_tool,middleware" doc:"What sends: the end of a run, or a tool of the agent."`
	ActionName       string   `yaml:"action_name" doc:"Name of the tool; without it send_to_<connector>."`
	SourceConnectors []string `yaml:"source_connectors" doc:"Connectors whose runs are sent, by their files' names; all without them."`
	Statuses         []string `yaml:"statuses" enum:"completed,failed,cancelled,delivery_failed" doc:"How runs that are sent have ended; delivery_failed sends word of deliveries that fail."`
}

// AllLinks are the links of both ways to write them, in order.
func (c *Connector) AllLinks() []Link {
	links := make([]Link, 0, len(c.Agents)+len(c.Links))
	for _, name := range c.Agents {
		links = append(links, Link{Agent: name})
	}
	return append(links, c.Links...)
}

// At is where a key is written, or the file when it is not written at all.
func (c *Connector) At(key string) Position {
	if e := c.source.get(key); e != nil {
		return e.pos
	}
	return Position{File: c.SourcePath, Line: 1, Column: 1}
}

func (c *Connector) atConfig(key string) Position {
	if config := c.source.path("config"); config != nil {
		if e := config.get(key); e != nil {
			return e.pos
		}
	}
	return c.At("config")
}

// ParseConnector validates the file connectors/<key>.yaml as Parse does, with agents of these
// names beside it. The error is Problems.
func ParseConnector(key string, content []byte, agents []string) (*Connector, error) {
	file := "connectors/" + key + ".yaml"
	p := &parsing{files: Files{file: content}, project: &Project{byName: make(map[string]*Agent, len(agents))}}
	for _, name := range agents {
		p.project.byName[name] = &Agent{Name: name}
	}
	p.connector(file)
	for _, c := range p.project.Connectors {
		p.linkConnector(c)
	}
	if err := p.problems.err(); err != nil {
		return nil, err
	}
	return p.project.Connectors[0], nil
}

// Unsupported says what the connector asks for that this release does not do, or that a file
// cannot ask for.
func (c *Connector) Unsupported() (problems Problems) {
	for _, l := range c.Links {
		if l.Outbound != nil && later.Has(later.File, "link.outbound.mode", l.Outbound.Mode) {
			problems.add(c.At("links"), "the mode %s of a link is not supported by this release; choose automatic or agent_tool", l.Outbound.Mode)
		}
	}
	if required := c.Config.RequireAuthentication; c.Config.Authentication == "none" || required != nil && !*required {
		problems.add(c.At("config"), "a webhook without authentication has its URL as its only secret, and that of a connector in code follows from its names: "+
			"create it by the REST API or kubectl, with a random id")
	}
	return problems
}

func (p *parsing) connector(file string) {
	source := p.parse(file)
	if source == nil {
		return
	}
	if p.connectors += len(p.files[file]); p.connectors > MaxConnectorsSize || len(p.project.Connectors) >= MaxConnectors {
		p.problems.add(Position{File: "connectors"}, "more than %d connectors, or files of more than %d KiB together", MaxConnectors, MaxConnectorsSize>>10)
		return
	}
	c := &Connector{Key: stem(file), SourcePath: file, Enabled: true, source: source}
	p.decoder().decode(source, c, "")
	if source.kind != kindMap {
		return
	}
	if strings.Count(file, "/") != 1 {
		p.problems.add(Position{File: file}, "connectors lie in connectors/ itself; move the file up")
	}
	if !dnsLabel40.MatchString(c.Key) {
		p.problems.add(Position{File: file}, "a connector's file is named by at most 40 lower-case letters, digits and inner dashes; rename it")
	}
	p.checkConnector(c)
	p.project.Connectors = append(p.project.Connectors, c)
}

func (p *parsing) checkConnector(c *Connector) {
	switch c.Type {
	case ConnectorWebhook:
		if modes := allowed[Connector]("mode"); !slices.Contains(modes, c.Mode) {
			p.problems.add(c.At("mode"), `"mode" must be one of %s, not %q`, strings.Join(modes, ", "), c.Mode)
			return
		}
	case ConnectorCron:
		if c.Mode != "" && c.Mode != ModeInbound {
			p.problems.add(c.At("mode"), `a cron connector is always inbound; remove "mode"`)
		}
		c.Mode = ModeInbound
	default:
		p.problems.add(c.At("type"), `"type" must be webhook or cron, not %q`, c.Type)
		return
	}
	p.checkConfigKeys(c)
	switch {
	case c.Type == ConnectorCron:
		p.checkCron(c)
	case c.Mode == ModeOutbound:
		p.checkOutbound(c)
	default:
		p.checkCalled(c)
	}
	if expand.Names(c.DisplayName) || utf8.RuneCountInString(c.DisplayName) > displayname.MaxLength {
		p.problems.add(c.At("name"), `"name" has at most %d characters, and no ${`, displayname.MaxLength)
	} else if problem := displayname.Problem(c.DisplayName); problem != "" && c.DisplayName != "" {
		p.problems.add(c.At("name"), `"name" %s`, problem)
	}
	if len(c.AllLinks()) > MaxConnectorLinks {
		p.problems.add(c.At("links"), "the connector has more than %d links, which is as many runs as one event may start", MaxConnectorLinks)
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

var (
	// webhookKeys are the keys of a webhook's config, by its mode.
	webhookKeys = map[string][]string{
		ModeInbound:  {"authentication", "require_authentication", "context_headers", "files_required"},
		ModeSync:     {"authentication", "require_authentication", "context_headers", "files_required", "timeout_seconds"},
		ModeOutbound: {"url", "headers", "timeout_seconds", "retry"},
	}
	// cronKeys are those of a cron connector's.
	cronKeys = []string{"schedule", "timezone", "missed_ticks", "prompt", "payload"}
)

// checkConfigKeys reports keys of config that belong to another type or mode.
func (p *parsing) checkConfigKeys(c *Connector) {
	allowed, kind := webhookKeys[c.Mode], c.Mode+" webhook"
	if c.Type == ConnectorCron {
		allowed, kind = cronKeys, "cron"
	}
	config := c.source.path("config")
	if config == nil {
		return
	}
	for _, e := range config.entries {
		if _, known := fieldsOf(configType)[e.key]; known && !slices.Contains(allowed, e.key) {
			p.problems.add(e.pos, "%q is not for %s connectors; their keys are %s", e.key, kind, strings.Join(allowed, ", "))
		}
	}
}

// authentications are the ways in which callers of a webhook prove themselves.
var authentications = allowed[ConnectorConfig]("authentication")

// checkCalled checks what inbound and sync webhooks have in common.
func (p *parsing) checkCalled(c *Connector) {
	config := c.Config
	switch required := config.RequireAuthentication; {
	case config.Authentication == "":
	case !slices.Contains(authentications, config.Authentication):
		p.problems.add(c.atConfig("authentication"), `"authentication" must be one of %s, not %q`, strings.Join(authentications, ", "), config.Authentication)
	case required != nil && *required == (config.Authentication == "none"):
		p.problems.add(c.atConfig("require_authentication"), `"require_authentication" contradicts "authentication"; remove one of both`)
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

// checkCron leaves to the deployment what holds a ${VAR}.
func (p *parsing) checkCron(c *Connector) {
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
	if _, err := cron.ParseMissed(config.MissedTicks); err != nil {
		p.problems.add(c.atConfig("missed_ticks"), `"missed_ticks" must be skip or latest`)
	}
}

// checkVariables checks how the texts of a cron connector name variables.
func (p *parsing) checkVariables(c *Connector, payload []byte) {
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

func (p *parsing) checkLink(c *Connector, l Link) {
	if l.Agent == "" {
		p.problems.add(c.At("links"), `a link needs "agent"`)
	}
	if l.FilesRequired && c.Mode == ModeOutbound {
		p.problems.add(c.At("links"), `"files_required" is for links of connectors that start runs; remove it`)
	}
	if l.Outbound == nil {
		return
	}
	if c.Mode != ModeOutbound {
		p.problems.add(c.At("links"), `"outbound" is for links of outbound connectors; remove it`)
	}
	for _, wrong := range l.Outbound.rules().Check() {
		p.problems.add(c.At("links"), `"outbound.%s" %s`, wrong.Field, wrong.Problem)
	}
}

// linkNames refuses connectors of one name, in any case of letters: an environment has each once.
func (p *parsing) linkNames() {
	files := map[string]string{} // by name
	for _, c := range p.project.Connectors {
		name := strings.ToLower(c.Title())
		if other, taken := files[name]; taken {
			p.problems.add(c.At("name"), `the name %q is that of %s already; choose another "name"`, c.Title(), other)
			continue
		}
		files[name] = c.SourcePath
	}
}

// linkConnector checks what a connector refers to.
func (p *parsing) linkConnector(c *Connector) {
	for _, name := range c.Agents {
		if !p.refusesVariant(c.At("agents"), name) && p.project.byName[name] == nil {
			p.problems.add(c.At("agents"), "no agent is named %q; write it or correct the name", name)
		}
	}
	for _, l := range c.Links {
		if !p.refusesVariant(c.At("links"), l.Agent) && l.Agent != "" && p.project.byName[l.Agent] == nil {
			p.problems.add(c.At("links"), "no agent is named %q; write it or correct the name", l.Agent)
		}
	}
}
