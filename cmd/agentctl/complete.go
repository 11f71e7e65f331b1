// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
)

const (
	// completeTimeout is how long a shell waits for what it completes by.
	completeTimeout = 3 * time.Second
	// mostCompleted is how many deployments or connectors are offered.
	mostCompleted = 20
)

// candidates asks the REST API what may stand where a person is writing.
type candidates func(ctx context.Context, api *rest, environment string) ([]cobra.Completion, error)

// completeByServer lets shells complete the flags and arguments of all commands below root by
// what a project has, where the flags or the environment say which one; else by nothing.
func completeByServer(root *cobra.Command) {
	arguments := map[string]candidates{
		"activate": deploymentNames, "cancel": deploymentNames, "redeploy": deploymentNames, "deploy-anyway": deploymentNames, "logs": deploymentNames,
		"test": connectorNames, "rotate-secret": connectorNames, "get": variableCandidates, "unset": variableCandidates,
	}
	for _, cmd := range root.Commands() {
		completeByServer(cmd)
		if cmd.Flags().Lookup("server") == nil {
			continue
		}
		for flag, offered := range map[string]candidates{"environment": environmentSlugs, "from": environmentSlugs, "to": environmentSlugs, "copy-from": environmentSlugs, "agent": agentNames, "connector": connectorNames} {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, asked(offered)) // fails of a flag that is not there
			}
		}
		if offered, known := arguments[cmd.Name()]; known && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = asked(offered)
		}
	}
}

// asked is a completion that asks the REST API once, and offers nothing where that does not answer.
func asked(offered candidates) cobra.CompletionFunc {
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
		api, err := o.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		api.wait = func(context.Context, time.Duration) error { return context.DeadlineExceeded } // a shell does not wait for another try
		found, err := offered(ctx, api, value("environment"))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func environmentSlugs(ctx context.Context, api *rest, _ string) (out []cobra.Completion, err error) {
	list, err := api.environments(ctx)
	for _, e := range list {
		out = append(out, word(e.Slug, e.ID, e.Name)...)
	}
	return out, err
}

func deploymentNames(ctx context.Context, api *rest, wanted string) ([]cobra.Completion, error) {
	_, all, err := api.deploymentsWithin(ctx, wanted)
	return offered(all), err
}

func connectorNames(ctx context.Context, api *rest, wanted string) ([]cobra.Completion, error) {
	_, all, err := api.connectorsWithin(ctx, wanted)
	return offered(all), err
}

// offered are the names of what there is, and the ids of what a name does not find.
func offered(all []named) (out []cobra.Completion) {
	for i, n := range all[:min(len(all), mostCompleted)] {
		at, err := chosen("", n.name, all, func(other named) bool { return other.name == n.name })
		if err == nil && at == i && unquoted.MatchString(n.name) {
			out = append(out, word(n.name, n.id, n.note)...)
			continue
		}
		out = append(out, word("", n.id, strings.TrimSpace(n.name+" "+n.note))...)
	}
	return out
}

// unquoted matches the words that a shell takes as they are. Bash inserts the common beginning of several
// words as it is, so a name with other characters would be a command of its author.
var unquoted = regexp.MustCompile(`^[A-Za-z0-9_.:/@][A-Za-z0-9_.:/@-]*$`)

// word returns the completion of something: its name, or else its id with the name in the description.
func word(name, id, note string) []cobra.Completion {
	if !unquoted.MatchString(name) {
		name, note = id, strings.TrimSpace(name+" "+note)
	}
	if !unquoted.MatchString(name) {
		return nil
	}
	return []cobra.Completion{cobra.CompletionWithDesc(name, printable(note))}
}

func agentNames(ctx context.Context, api *rest, wanted string) (out []cobra.Completion, err error) {
	e, err := api.environment(ctx, wanted)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name string `json:"name"`
	}
	err = api.call(ctx, http.MethodGet, "/agents?environment_id="+url.QueryEscape(e.ID), "", nil, &list)
	for _, a := range list {
		out = append(out, word(a.Name, "", "")...)
	}
	return out, err
}

func variableCandidates(ctx context.Context, api *rest, wanted string) (out []cobra.Completion, err error) {
	e, err := api.environment(ctx, wanted)
	if err != nil {
		return nil, err
	}
	known, err := api.variables(ctx, e)
	for _, v := range known.list {
		out = append(out, word(v.Name, "", "")...)
	}
	return out, err
}

// showAs puts the name that the program is called by into examples and texts of the help.
func showAs(cmd *cobra.Command, name string) {
	called := strings.NewReplacer("agentctl ", name+" ")
	cmd.Example, cmd.Long = called.Replace(cmd.Example), called.Replace(cmd.Long)
	for _, sub := range cmd.Commands() {
		showAs(sub, name)
	}
}
