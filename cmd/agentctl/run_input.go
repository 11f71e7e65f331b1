// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/pricing"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// readPayload returns the input of the agent as JSON. Other text becomes a JSON text.
func (o *runOptions) readPayload() ([]byte, error) {
	text := []byte(o.input)
	if isJSON := json.Valid(text); !isJSON {
		var err error
		if text, err = o.readInputFile(); err != nil {
			return nil, err
		}
	}
	if text = bytes.TrimSpace(text); json.Valid(text) {
		return text, nil
	}
	payload, err := json.Marshal(string(text))
	if err != nil {
		return nil, fmt.Errorf("--input: %w", err)
	}
	return payload, nil
}

func (o *runOptions) readInputFile() ([]byte, error) {
	if o.input == "-" {
		text, err := io.ReadAll(o.in)
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(o.input)
	switch {
	case errors.Is(err, os.ErrNotExist) && strings.ContainsAny(o.input, "{}[]\""):
		return nil, errors.New("--input: the text is neither JSON nor the name of a file")
	case err != nil:
		return nil, fmt.Errorf("--input: %w", err)
	}
	return text, nil
}

// readReplacedModels reads the flag --model. It also returns the providers of all models that a run can ask.
func readReplacedModels(project *bundle.Project, given []string) (replaced map[string]string, providers []string, err error) {
	replaced, used := map[string]string{}, usedModels(project)
	for _, text := range given {
		from, to, found := strings.Cut(text, "=")
		if file, isFile := strings.CutPrefix(to, "models/"); isFile {
			to = bundle.ScriptedPrefix + strings.TrimSuffix(file, ".yaml")
		}
		file, isScript := strings.CutPrefix(to, bundle.ScriptedPrefix)
		switch {
		case !found || !strings.Contains(to, "/"):
			return nil, nil, errors.New("--model: must be MODEL=OTHER, such as openai/gpt-5=scripted/support")
		case !slices.Contains(used, from):
			return nil, nil, fmt.Errorf("--model: no agent has the model %q; there is %s", printable(from), strings.Join(used, ", "))
		case isScript && project.Scripts[file] == nil:
			return nil, nil, fmt.Errorf("--model: the repository has no script models/%s.yaml", printable(file))
		}
		replaced[from] = to
	}
	for _, reference := range used {
		providers = addProvider(providers, cmp.Or(replaced[reference], reference))
	}
	return replaced, providers, nil
}

// usedModels returns the models of all agents.
func usedModels(project *bundle.Project) (used []string) {
	for _, a := range project.Agents {
		for _, use := range a.Models() {
			if !slices.Contains(used, use.Reference) {
				used = append(used, use.Reference)
			}
		}
	}
	slices.Sort(used)
	return used
}

// replacedModels are models with others in their place.
type replacedModels struct {
	engine.Models
	replaced map[string]string
}

// Resolve implements engine.Models.
func (m *replacedModels) Resolve(reference string, project *bundle.Project, settings model.Settings) (model.Model, error) {
	return m.Models.Resolve(cmp.Or(m.replaced[reference], reference), project, settings)
}

// listPrices returns the list prices of the models of services.
func listPrices(services runnerconfig.Providers) (runnerconfig.Prices, error) {
	table, err := pricing.Known()
	if err != nil {
		return runnerconfig.Prices{}, err
	}
	out := runnerconfig.Prices{Prices: map[string]runnerconfig.Price{}}
	for _, service := range services.Providers {
		for name, written := range table.Of(cmp.Or(service.BaseURL, runnerconfig.OpenAIAddress)) {
			p, err := written.Price()
			if err != nil {
				return runnerconfig.Prices{}, fmt.Errorf("reading the platform's price table: %w", err)
			}
			out.Prices[service.Prefix+"/"+name] = runnerconfig.Price{
				Currency: "USD", Input: p.Input, CachedInput: p.CachedInput, Output: p.Output, Thinking: p.Thinking,
			}
		}
	}
	return out, nil
}

// secretName matches the names of environment variables with secrets.
var secretName = regexp.MustCompile(`(?i)(key|token|secret|password|passwd|credential|auth)`)

// minEnvironmentSecret is the length of the shortest value of the environment that is hidden, in bytes.
const minEnvironmentSecret = 8

// findSecrets returns the values that no recorded case may contain: keys of model services, client secrets, variables that MCP servers
// use in headers, and variables whose names are names of secrets.
func findSecrets(project *bundle.Project, variables runnerconfig.Variables, services runnerconfig.Providers, environment []string) (secrets []string) {
	for _, service := range services.Providers {
		secrets = append(secrets, service.APIKey)
	}
	for _, pair := range environment {
		if name, value, _ := strings.Cut(pair, "="); secretName.MatchString(name) && len(value) >= minEnvironmentSecret {
			secrets = append(secrets, value)
		}
	}
	for _, app := range variables.OAuthApps {
		secrets = append(secrets, app.ClientSecret)
	}
	var inHeaders []string
	for _, a := range project.Agents {
		for _, s := range a.MCPServers {
			for _, text := range s.Headers {
				inHeaders = append(inHeaders, text)
			}
			if s.OAuth != nil {
				inHeaders = append(inHeaders, s.OAuth.ClientSecret)
			}
		}
	}
	for _, v := range variables.Variables {
		isUsed := slices.ContainsFunc(inHeaders, func(text string) bool { return strings.Contains(text, "${"+v.Name+"}") })
		if v.Sensitive || isUsed || secretName.MatchString(v.Name) {
			secrets = append(secrets, v.Value)
		}
	}
	return secrets
}
