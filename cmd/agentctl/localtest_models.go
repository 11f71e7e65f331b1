// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxModelResponse is the size limit of a response of a model service in bytes.
const maxModelResponse = 32 << 20

// openAI is the provider with a default address.
const openAI = "openai"

// newModelRegistry returns the model services that environment variables configure for the agents of a repository.
func newModelRegistry(project *bundle.Project, getenv func(string) string) (*model.Registry, error) {
	providers, err := readProviders(findProviders(project), getenv)
	if err != nil {
		return nil, err
	}
	return newRegistry(providers), nil
}

// newRegistry returns the models of services.
func newRegistry(providers runnerconfig.Providers) *model.Registry {
	return &model.Registry{
		Providers: func() (runnerconfig.Providers, error) { return providers, nil },
		HTTP:      egress.New(egress.DeveloperRules()).Client(egress.Model, egress.ClientOptions{MaxResponse: maxModelResponse}),
	}
}

// readProviders returns the model services that environment variables configure, by the prefixes of models.
func readProviders(prefixes []string, getenv func(string) string) (providers runnerconfig.Providers, err error) {
	for _, prefix := range prefixes {
		name := variablePrefix(prefix)
		p := runnerconfig.Provider{Prefix: prefix, Type: runnerconfig.ProviderOpenAI, BaseURL: getenv(name + "_BASE_URL"), APIKey: getenv(name + "_API_KEY")}
		if p.BaseURL == "" && p.APIKey == "" {
			continue
		}
		if err := checkProvider(name, p); err != nil {
			return runnerconfig.Providers{}, err
		}
		providers.Providers = append(providers.Providers, p)
	}
	return providers, nil
}

// checkProvider returns an error that names the wrong variable, never its value.
func checkProvider(name string, p runnerconfig.Provider) error {
	if p.BaseURL == "" {
		if p.Prefix == openAI {
			return nil
		}
		return fmt.Errorf("%s_API_KEY: the address of the service is unknown; set %s_BASE_URL too", name, name)
	}
	base, err := url.Parse(p.BaseURL)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return fmt.Errorf("%s_BASE_URL: must be a URL with the version, such as https://api.openai.com/v1", name)
	case base.Scheme == "http" && p.APIKey != "" && !isLoopback(base.Hostname()):
		return fmt.Errorf("%s_BASE_URL: the key would cross the network unencrypted; use https", name)
	}
	return nil
}

// findProviders returns the providers of the models of a repository's agents, except scripted models.
func findProviders(project *bundle.Project) (prefixes []string) {
	for _, a := range project.Agents {
		for _, use := range a.Models() {
			prefixes = addProvider(prefixes, use.Reference)
		}
	}
	return prefixes
}

// addProvider adds the provider of a model, unless it is scripted or known.
func addProvider(prefixes []string, reference string) []string {
	needed, name, builtIn := runnerconfig.Providers{}.FindProvider(reference)
	if name == "" || builtIn || slices.Contains(prefixes, needed.Prefix) {
		return prefixes
	}
	return append(prefixes, needed.Prefix)
}

// variableFlags are the flags for the variables of an environment.
type variableFlags struct {
	variables []string
	sensitive []string
	envFile   string
}

func (f *variableFlags) bindFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.variables, "env", nil, "NAME=VALUE, a variable of the environment; can be repeated")
	flags.StringVar(&f.envFile, "env-file", "", "file with one NAME=VALUE per line; --env takes precedence")
	flags.StringSliceVar(&f.sensitive, "sensitive", nil, "names of variables that are sensitive in the environment, so that no prompt can use them")
}

// readVariables reads the variables.
func (f *variableFlags) readVariables() (runnerconfig.Variables, error) {
	return readVariables(f.variables, f.envFile, f.sensitive)
}

// parseVariable reads NAME=VALUE. The error does not repeat the value.
func parseVariable(text string) (name, value string, err error) {
	name, value, found := strings.Cut(text, "=")
	if !found || !bundle.VariableName.MatchString(name) {
		return "", "", errors.New("must be NAME=VALUE; NAME has capital letters, digits and _, and does not begin with a digit")
	}
	return name, value, nil
}

// readVariables reads variables from the command line and from a file. No model sees the sensitive ones.
func readVariables(given []string, file string, sensitive []string) (runnerconfig.Variables, error) {
	var all []runnerconfig.Variable
	add := func(text string) error {
		name, value, err := parseVariable(text)
		if err == nil && !slices.ContainsFunc(all, func(v runnerconfig.Variable) bool { return v.Name == name }) {
			all = append(all, runnerconfig.Variable{Name: name, Value: value})
		}
		return err
	}
	for i := len(given) - 1; i >= 0; i-- { // The last one takes precedence.
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
			return runnerconfig.Variables{}, fmt.Errorf("--sensitive: neither --env nor --env-file sets %q", printable(name))
		}
		all[at].Sensitive = true
	}
	if name, problem := runnerconfig.CheckVariables(all); problem != "" {
		return runnerconfig.Variables{}, fmt.Errorf("--env, --env-file: %s", strings.TrimSpace(name+" "+problem))
	}
	return runnerconfig.Sorted(all), nil
}
