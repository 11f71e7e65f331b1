// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"net/url"
	"regexp"
	"strings"
)

var (
	agentName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	modelName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?/\S+$`)
	stemName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	toolName   = regexp.MustCompile(`^[a-z0-9_-]+$`)
	codeName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*\.([A-Za-z_][A-Za-z0-9_-]*|\*)$`)
	mcpTool    = regexp.MustCompile(`^[A-Za-z0-9_./*-]+$`)
	mcpPrefix  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	costAmount = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})? (USD|EUR)$`)
	dnsLabel40 = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
)

// textForm is a form of text that fields name in the tag form.
type textForm struct {
	// pattern and maxLength are part of JSON Schemas. A form without a pattern has a check.
	pattern   *regexp.Regexp
	maxLength int
	check     func(text string) bool
	// description follows "must be" in problems.
	description string
}

// textForms are all forms by the names that tags use.
var textForms = map[string]textForm{
	"name":    {pattern: agentName, maxLength: maxName, description: "at most 63 lower-case letters, digits and inner dashes"},
	modelForm: {pattern: modelName, maxLength: MaxYAMLSize, description: "provider/model, such as openai/gpt-5"},
	"label":   {pattern: dnsLabel40, maxLength: 40, description: "at most 40 lower-case letters, digits and inner dashes"},
	"mcpTool": {pattern: mcpTool, maxLength: 128,
		description: "the name of a tool, with * for any characters: at most 128 letters, digits, _, -, . and /"},
	"mcpPrefix": {pattern: mcpPrefix, maxLength: 40, description: "at most 40 letters, digits, _ and -"},
	"cost":      {pattern: costAmount, maxLength: 24, description: "an amount in USD or EUR, such as '5.00 USD'"},
	"variable":  {pattern: variable, maxLength: maxName, description: "at most 63 letters, digits and _, and no digit first"},
	"url":       {check: isHTTPURL, description: "an http or https URL"},
}

// matches reports whether a text has the form.
func (f textForm) matches(text string) bool {
	if f.pattern != nil {
		return len(text) <= f.maxLength && f.pattern.MatchString(text)
	}
	return f.check(text)
}

// isHTTPURL reports whether a text is an http or https URL. It accepts a text with ${NAME}, which gets its value
// from the environment's variables later.
func isHTTPURL(text string) bool {
	if strings.Contains(text, "${") {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}
