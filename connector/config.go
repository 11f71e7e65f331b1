// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/cron"
)

// Values of Authentication that are no signature of a provider.
const (
	AuthenticationSecret = "secret"
	AuthenticationNone   = "none"
)

// Config has the settings of all kinds. The tags of a field describe a setting, as in package bundle. The tag kinds names
// the kinds that have it, the tag needed the kind that requires it. A setting without a value has its default.
type Config struct {
	RequireAuthentication *bool             `yaml:"require_authentication" json:"require_authentication,omitzero" kinds:"inbound,sync" doc:"Whether callers must authenticate; false is the same as 'authentication' with 'none'. If both are written, they must agree."`
	Authentication        string            `yaml:"authentication" json:"authentication,omitzero" kinds:"inbound,sync" enum:"secret,none,github,gitlab,stripe,slack,standard_webhooks" without:"secret" doc:"How callers authenticate: with the secret of the connector, or with the signature of a provider."`
	ContextHeaders        []string          `yaml:"context_headers" json:"context_headers,omitzero" kinds:"inbound,sync" maxItems:"16" example:"[x-github-event]" doc:"Names of request headers that runs see in their context. Headers with credentials are not allowed."`
	FilesRequired         *bool             `yaml:"files_required" json:"files_required,omitzero" kinds:"inbound,sync" without:"false" doc:"Fails the runs of an event before they start if it has no attachment, or an attachment was omitted."`
	TimeoutSeconds        *int              `yaml:"timeout_seconds" json:"timeout_seconds,omitzero" kinds:"sync,outbound" min:"1" max:"900" without:"300 (sync), 15 (outbound)" doc:"Time limit in seconds: of a sync webhook for the answer, of an outbound webhook for an attempt (at most 60)."`
	URL                   string            `yaml:"url" variables:"any" json:"url,omitzero" kinds:"outbound" needed:"outbound" maxLength:"2048" example:"https://example.com/results" doc:"URL that an outbound webhook sends results to: https, or http if the platform operator allows the address range. Credentials belong in headers."`
	Headers               map[string]string `yaml:"headers" variables:"any" json:"headers,omitzero" kinds:"outbound" doc:"Headers of the requests with results, at most 32. 'X-Service-*', 'Webhook-*', 'Host', 'Content-*' and connection headers cannot be set."`
	Retry                 *Retry            `yaml:"retry" json:"retry,omitzero" kinds:"outbound" doc:"Retries of failed deliveries. Default: ten attempts in about three days."`
	Schedule              string            `yaml:"schedule" variables:"plain" json:"schedule,omitzero" kinds:"cron" needed:"cron" maxLength:"256" example:"0 6 * * 1-5" doc:"Schedule, as five fields of cron or one of '@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight' and '@hourly'."`
	Timezone              string            `yaml:"timezone" variables:"plain" json:"timezone,omitzero" kinds:"cron" maxLength:"64" without:"UTC" example:"Europe/Paris" doc:"IANA name of the schedule's time zone."`
	MissedTicks           string            `yaml:"missed_ticks" json:"missed_ticks,omitzero" kinds:"cron" enum:"skip,latest" without:"skip" doc:"Handling of ticks that could not run within five minutes: 'skip' drops them, 'latest' runs the newest one."`
	Prompt                string            `yaml:"prompt" variables:"plain" json:"prompt,omitzero" kinds:"cron" maxLength:"16384" doc:"Task for the agents."`
	Payload               json.RawMessage   `yaml:"payload" variables:"plain" json:"payload,omitzero" kinds:"cron" doc:"Further input for the agents, as keys and values. Prompt and payload have at most 64 KiB together, as JSON."`
}

// Retry configures the retries of a delivery.
type Retry struct {
	MaxAttempts     *int  `yaml:"max_attempts" json:"max_attempts,omitzero" min:"1" max:"20" without:"the length of the schedule" doc:"Maximum number of attempts."`
	ScheduleSeconds []int `yaml:"schedule_seconds" json:"schedule_seconds,omitzero" maxItems:"20" doc:"Delay before each attempt after the previous one, in seconds, give or take a fifth; at most 86400. The first is 0. The last delay repeats. Default: 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."`
}

// ParseConfig parses settings in the form of the store.
func ParseConfig(raw json.RawMessage) (c Config, err error) {
	if err = json.Unmarshal(raw, &c); err != nil {
		return Config{}, fmt.Errorf("reading the settings of a connector: %w", err)
	}
	return c, nil
}

// FieldError is the problem of a setting. It contains no value, except the beginning of a header's name.
type FieldError struct {
	// Field is the name of the setting.
	Field string
	// Problem continues the name: "must be …".
	Problem string
}

// Check returns the problems of the settings of a kind. If a setting breaks its tags, its rules are not checked.
func (k Kind) Check(c Config) []FieldError {
	problems := k.checkTags(c)
	return append(problems, slices.DeleteFunc(k.CheckRules(c), func(rule FieldError) bool {
		return slices.ContainsFunc(problems, func(tag FieldError) bool { return tag.Field == rule.Field })
	})...)
}

// CheckRules is Check without the tags, which the parser of a repository's files enforces itself.
func (k Kind) CheckRules(c Config) []FieldError {
	if check := k.definition().check; check != nil {
		return check(c)
	}
	return []FieldError{{"mode", "is not a mode of this type"}}
}

// RequiresAuthentication reports whether callers of a kind must authenticate.
func (c Config) RequiresAuthentication(k Kind) bool {
	return k.HasCallers() && c.Authentication != AuthenticationNone && (c.RequireAuthentication == nil || *c.RequireAuthentication)
}

// Signature returns the provider whose signature authenticates callers of a kind, or "" if they send the secret or nothing.
func (c Config) Signature(k Kind) string {
	if !c.RequiresAuthentication(k) || c.Authentication == AuthenticationSecret {
		return ""
	}
	return c.Authentication
}

// RequiresFiles reports whether runs of events without attachments fail.
func (c Config) RequiresFiles() bool { return c.FilesRequired != nil && *c.FilesRequired }

// RequiresFiles is Config.RequiresFiles for settings in the form of the store.
func RequiresFiles(raw json.RawMessage) (bool, error) {
	c, err := ParseConfig(raw)
	return c.RequiresFiles(), err
}

// WithDefaults returns the settings of a kind with the defaults of the missing ones.
func (c Config) WithDefaults(k Kind) Config {
	if k.HasCallers() {
		required, files := c.RequiresAuthentication(k), c.RequiresFiles()
		c.RequireAuthentication, c.FilesRequired = &required, &files
		switch {
		case !required:
			c.Authentication = AuthenticationNone
		case c.Authentication == "":
			c.Authentication = AuthenticationSecret
		}
		c.ContextHeaders = append([]string{}, c.HeaderNames()...)
	}
	if k.DefaultTimeout() > 0 {
		seconds := int(c.Timeout(k).Seconds())
		c.TimeoutSeconds = &seconds
	}
	if k.Sends() {
		c.Retry = c.effectiveRetry()
	}
	return c.withEmptyDefaults(k)
}

// withEmptyDefaults gives empty texts the defaults in their tags, and makes missing maps and documents empty.
func (c Config) withEmptyDefaults(k Kind) Config {
	for _, f := range k.Fields() {
		switch value := f.In(&c).Addr().Interface().(type) {
		case *string:
			*value = cmp.Or(*value, f.Default)
		case *map[string]string:
			if *value == nil {
				*value = map[string]string{}
			}
		case *json.RawMessage:
			if len(*value) == 0 {
				*value = json.RawMessage("{}")
			}
		}
	}
	return c
}

// Timeout returns the time limit of a kind, 0 for a kind without one.
func (c Config) Timeout(k Kind) time.Duration {
	d := k.definition()
	if d.timeout == 0 || c.TimeoutSeconds == nil || *c.TimeoutSeconds <= 0 {
		return d.timeout
	}
	return min(time.Duration(*c.TimeoutSeconds)*time.Second, d.maxTimeout)
}

// HeaderNames returns the context headers in lower case and without duplicates.
func (c Config) HeaderNames() (names []string) {
	for _, name := range c.ContextHeaders {
		if lower := strings.ToLower(name); !slices.Contains(names, lower) {
			names = append(names, lower)
		}
	}
	return names
}

// checkCallers checks the settings of webhooks that callers use.
func (c Config) checkCallers() (problems []FieldError) {
	if required := c.RequireAuthentication; c.Authentication != "" && required != nil && *required == (c.Authentication == AuthenticationNone) {
		problems = append(problems, FieldError{"require_authentication", `contradicts "authentication"; remove one of them`})
	}
	for _, name := range c.ContextHeaders {
		if problem := CheckContextHeader(name); problem != "" {
			problems = append(problems, FieldError{"context_headers", fmt.Sprintf("has %.40q, which %s", name, problem)})
		}
	}
	return problems
}

// checkSchedule checks the settings of a cron connector.
func (c Config) checkSchedule() (problems []FieldError) {
	for _, wrong := range cron.Check(c.Schedule, c.Timezone, c.Prompt, c.Payload) {
		problems = append(problems, FieldError{string(wrong.Field), wrong.Problem})
	}
	return problems
}
