// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

const (
	// completeTimeout is how long a shell waits for completions.
	completeTimeout = 3 * time.Second
	// maxCompleted is how many deployments or connectors are offered.
	maxCompleted = 20
)

// completer asks the REST API for the words that complete an argument or a flag.
type completer func(ctx context.Context, api *apiClient, environment string) ([]cobra.Completion, error)

// addCompletions lets shells complete the flags and arguments of all commands below root by the objects of a project. Without
// flags or environment variables that name the project, nothing is completed.
func addCompletions(root *cobra.Command) {
	arguments := map[string]completer{
		"activate": completeDeployments, "cancel": completeDeployments, "redeploy": completeDeployments, "deploy-anyway": completeDeployments, "logs": completeDeployments,
		"test": completeConnectors, "rotate-secret": completeConnectors, "get": completeVariables, "unset": completeVariables,
	}
	flags := map[string]completer{
		"environment": completeEnvironments, "from": completeEnvironments, "to": completeEnvironments, "copy-from": completeEnvironments,
		"agent": completeAgents, "connector": completeConnectors,
	}
	for _, cmd := range root.Commands() {
		addCompletions(cmd)
		if cmd.Flags().Lookup("server") == nil {
			continue
		}
		for flag, complete := range flags {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, askServer(complete)) // The flag exists.
			}
		}
		if complete, known := arguments[cmd.Name()]; known && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = askServer(complete)
		}
	}
}

// askServer returns a completion that calls the REST API without retries. It offers nothing if the call fails.
func askServer(complete completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		value := func(name string) string {
			if flag := cmd.Flags().Lookup(name); flag != nil {
				return flag.Value.String()
			}
			return ""
		}
		if err := flagenv.Read(cmd.Flags()); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		o := restOptions{server: value("server"), project: value("project"), key: value("api-key"), keyFile: value("api-key-file"), plainHTTP: value("plain-http") == "true"}
		api, err := o.newClient()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		api.Wait = func(context.Context, time.Duration) error { return context.DeadlineExceeded } // A shell does not wait for a retry.
		found, err := complete(ctx, api, value("environment"))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeEnvironments(ctx context.Context, api *apiClient, _ string) (out []cobra.Completion, err error) {
	list, err := api.listEnvironments(ctx)
	for _, e := range list {
		out = append(out, completion(e.Slug, e.ID, e.Name)...)
	}
	return out, err
}

func completeDeployments(ctx context.Context, api *apiClient, environment string) ([]cobra.Completion, error) {
	_, all, err := api.deploymentCandidates(ctx, environment)
	return completions(all), err
}

func completeConnectors(ctx context.Context, api *apiClient, environment string) ([]cobra.Completion, error) {
	_, all, err := api.connectorCandidates(ctx, environment)
	return completions(all), err
}

// completions returns the names of candidates, and the IDs of candidates whose name is ambiguous.
func completions(all []candidate) (out []cobra.Completion) {
	for i, c := range all[:min(len(all), maxCompleted)] {
		at, err := findCandidate("", c.name, all, func(other candidate) bool { return other.name == c.name })
		if err == nil && at == i && unquoted.MatchString(c.name) {
			out = append(out, completion(c.name, c.id, c.note)...)
			continue
		}
		out = append(out, completion("", c.id, strings.TrimSpace(c.name+" "+c.note))...)
	}
	return out
}

// unquoted matches words without characters that a shell interprets. Bash inserts the common beginning of several words
// unquoted, so the author of a name with other characters could run a command.
var unquoted = regexp.MustCompile(`^[A-Za-z0-9_.:/@][A-Za-z0-9_.:/@-]*$`)

// completion returns the completion of an object: its name, or else its ID with the name in the description.
func completion(name, id, note string) []cobra.Completion {
	if !unquoted.MatchString(name) {
		name, note = id, strings.TrimSpace(name+" "+note)
	}
	if !unquoted.MatchString(name) {
		return nil
	}
	return []cobra.Completion{cobra.CompletionWithDesc(name, printable(note))}
}

func completeAgents(ctx context.Context, api *apiClient, environment string) (out []cobra.Completion, err error) {
	e, err := api.findEnvironment(ctx, "--environment", environment)
	if err != nil {
		return nil, err
	}
	list, err := api.ListAgents(ctx, &restclient.ListAgentsParams{EnvironmentID: e.ID})
	for _, a := range list.Value {
		out = append(out, completion(a.Name, "", "")...)
	}
	return out, err
}

func completeVariables(ctx context.Context, api *apiClient, environment string) (out []cobra.Completion, err error) {
	e, err := api.findEnvironment(ctx, "--environment", environment)
	if err != nil {
		return nil, err
	}
	known, err := api.readVariables(ctx, e)
	for _, v := range known.Value {
		out = append(out, completion(v.Name, "", "")...)
	}
	return out, err
}

// renameProgram puts the name under which the program was called into examples and texts of the help.
func renameProgram(cmd *cobra.Command, name string) {
	replacer := strings.NewReplacer("agentctl ", name+" ")
	cmd.Example, cmd.Long = replacer.Replace(cmd.Example), replacer.Replace(cmd.Long)
	for _, sub := range cmd.Commands() {
		renameProgram(sub, name)
	}
}
