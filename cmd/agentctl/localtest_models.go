// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxModelAnswer is the most bytes of a model service's answer.
const maxModelAnswer = 32 << 20

// openAI is the provider that has an address of its own.
const openAI = "openai"

// modelsHere are the model services that the environment names for the agents of a repository.
// Whoever runs tests on their machine may reach what the machine reaches.
func modelsHere(project *bundle.Project, getenv func(string) string) (*model.Registry, error) {
	var providers runnerconfig.Providers
	for _, prefix := range providersOf(project) {
		name := strings.ToUpper(strings.ReplaceAll(prefix, "-", "_"))
		p := runnerconfig.Provider{Prefix: prefix, Type: runnerconfig.ProviderOpenAI, BaseURL: getenv(name + "_BASE_URL"), APIKey: getenv(name + "_API_KEY")}
		if p.BaseURL == "" && p.APIKey == "" {
			continue
		}
		if err := checkProvider(name, p); err != nil {
			return nil, err
		}
		providers.Providers = append(providers.Providers, p)
	}
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	guard := egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Model: everywhere}})
	return &model.Registry{
		Providers: func() (runnerconfig.Providers, error) { return providers, nil },
		HTTP:      guard.Client(egress.Model, egress.ClientOptions{MaxResponse: maxModelAnswer}),
	}, nil
}

// checkProvider says which variable is wrong, never with its value.
func checkProvider(name string, p runnerconfig.Provider) error {
	if p.BaseURL == "" {
		if p.Prefix == openAI {
			return nil
		}
		return fmt.Errorf("%s_API_KEY: it is not known where to send it; set %s_BASE_URL too", name, name)
	}
	base, err := url.Parse(p.BaseURL)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return fmt.Errorf("%s_BASE_URL: must be a URL with the version, such as https://api.openai.com/v1", name)
	case base.Scheme == "http" && p.APIKey != "" && !isLoopback(base.Hostname()):
		return fmt.Errorf("%s_BASE_URL: the key would cross the network in clear; use https", name)
	}
	return nil
}

// providersOf are the providers of the models of a repository's agents, but for scripts.
func providersOf(project *bundle.Project) (prefixes []string) {
	for _, a := range project.Agents {
		for _, reference := range []string{a.Model, a.FallbackModel} {
			prefix, _, named := strings.Cut(reference, "/")
			if named && prefix != "scripted" && !slices.Contains(prefixes, prefix) {
				prefixes = append(prefixes, prefix)
			}
		}
	}
	return prefixes
}

// parseVariable reads NAME=VALUE. The error does not repeat the value.
func parseVariable(text string) (name, value string, err error) {
	name, value, found := strings.Cut(text, "=")
	if !found || !engine.VariableName.MatchString(name) {
		return "", "", errors.New("must be NAME=VALUE, the name of capital letters, digits and _, and no digit first")
	}
	return name, value, nil
}

// readVariables reads variables of the command line and of a file; sensitive are the names of
// those that no model is told.
func readVariables(given []string, file string, sensitive []string) (runnerconfig.Variables, error) {
	var all []runnerconfig.Variable
	add := func(text string) error {
		name, value, err := parseVariable(text)
		if err == nil && !slices.ContainsFunc(all, func(v runnerconfig.Variable) bool { return v.Name == name }) {
			all = append(all, runnerconfig.Variable{Name: name, Value: value})
		}
		return err
	}
	for i := len(given) - 1; i >= 0; i-- { // the last one counts
		if err := add(given[i]); err != nil {
			return runnerconfig.Variables{}, fmt.Errorf("--env: %w", err)
		}
	}
	if file != "" {
		data, err := os.ReadFile(file) //nolint:gosec // the user's flag
		if err != nil {
			return runnerconfig.Variables{}, fmt.Errorf("--env-file: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		for number := 1; lines.Scan(); number++ {
			if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
				if err := add(line); err != nil {
					return runnerconfig.Variables{}, fmt.Errorf("--env-file: %s:%d: %w", file, number, err)
				}
			}
		}
		if err := lines.Err(); err != nil {
			return runnerconfig.Variables{}, fmt.Errorf("--env-file: %w", err)
		}
	}
	for _, name := range sensitive {
		at := slices.IndexFunc(all, func(v runnerconfig.Variable) bool { return v.Name == name })
		if at < 0 {
			return runnerconfig.Variables{}, fmt.Errorf("--sensitive: neither --env nor --env-file gives %q", printable(name))
		}
		all[at].Sensitive = true
	}
	if name, problem := runnerconfig.CheckVariables(all); problem != "" {
		return runnerconfig.Variables{}, fmt.Errorf("--env, --env-file: %s", strings.TrimSpace(name+" "+problem))
	}
	return runnerconfig.Sorted(all), nil
}
