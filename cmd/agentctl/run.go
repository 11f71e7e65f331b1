// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
	settings "github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/filetype"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/localrun"
	"github.com/agentplatform/agentplatform/runner/oauth"
	"github.com/agentplatform/agentplatform/runner/script"
)

// runOptions are the flags of `run`.
type runOptions struct {
	variableFlags
	output

	dir, input     string
	headers, files []string
	models         []string
	record, name   string
	timeout        time.Duration

	agent         string
	in            io.Reader
	out, messages io.Writer
	now           func() time.Time
}

func newRunCommand() *cobra.Command { return newRunCommandAt(time.Now) }

// newRunCommandAt returns the command with a clock.
func newRunCommandAt(now func() time.Time) *cobra.Command {
	o := &runOptions{now: now}
	cmd := &cobra.Command{
		Use:   "run AGENT",
		Short: "Run an agent of a folder on this machine",
		Long: `Run an agent of a folder on this machine, with the engine and the features of a runner. This
needs no platform. Standard output is the output of the agent. The steps are shown on standard
error while they happen: agents, answers of models with tokens and cost, calls of tools, HTTP
requests, scripts of steps, middleware and hooks, and lines of logs.

Tools are called for real: HTTP tools, scripts and MCP servers. They can connect to public and
private addresses and to this machine, also over plain http, but not to link-local addresses
such as metadata services. Nothing is sent to connectors.

Environment variables configure the service of a model as for the command test. --model
replaces a model by another one, such as a script in models/. They also configure the OAuth app
crm of tools and MCP servers: CRM_TOKEN_URL, CRM_CLIENT_ID and CRM_CLIENT_SECRET, and if needed
CRM_SCOPES, separated by spaces, and CRM_AUDIENCE.

--record writes a test case with mocks that answer as models and services did. The values of
sensitive variables, of variables in headers, and of environment variables with names such as
API_KEY or TOKEN are not written.`,
		Example: `  agentctl run support --input '{"question": "Where is order 4711?"}'
  agentctl run support --input question.json --env ORDERS_URL=http://127.0.0.1:8080
  agentctl run support --input - --model openai/gpt-5=scripted/support
  agentctl run support --input question.json --record tests/order-4711.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.agent, o.in, o.out, o.messages = args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return o.runAgent(cmd.Context())
		},
	}
	setOutcome(cmd, "the run failed")
	flags := cmd.Flags()
	o.variableFlags.bindFlags(flags)
	flags.StringVar(&o.dir, "folder", ".", "folder of the project")
	flags.StringVar(&o.input, "input", "{}", "input of the agent: JSON, or a file with JSON or text, or - for standard input")
	flags.StringArrayVar(&o.headers, "header", nil, "NAME=VALUE, a header of the event; can be repeated")
	flags.StringArrayVar(&o.files, "file", nil, "attachment; can be repeated")
	flags.StringArrayVar(&o.models, "model", nil, "MODEL=OTHER, another model in place of a model of the agents, such as openai/gpt-5=scripted/support; can be repeated")
	flags.StringVar(&o.record, "record", "", "write a test case with mocks to this new file, such as tests/recorded.yaml")
	flags.StringVar(&o.name, "case", "", "name of the recorded case; default: the name of its file")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "time limit of the run")
	flags.VarP(&o.output, "output", "o", "print the result with all steps as json or yaml instead of text")
	return cmd
}

func (o *runOptions) runAgent(ctx context.Context) error {
	project, err := readRepository(o.dir, o.messages, "nothing was run")
	if err != nil {
		return err
	}
	if project.Agent(o.agent) == nil {
		return fmt.Errorf("no agent is named %q; there is %s", printable(o.agent), strings.Join(agentNames(project), ", "))
	}
	recording, err := o.prepareRecording()
	if err != nil {
		return err
	}
	opts, err := o.readOptions(project)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("the run took longer than --timeout, %s", o.timeout))
	defer cancel()
	result, err := o.execute(ctx, opts)
	if err != nil {
		return err
	}
	if err := o.printResult(ctx, result); err != nil {
		return err
	}
	if recording != nil && result.Status != engine.Unfinished {
		if err := recording.writeCase(ctx, result, opts); err != nil {
			return err
		}
	}
	return o.outcome(ctx, result)
}

// execute runs the agent. All processes of scripts and all sessions with MCP servers end before it returns.
func (o *runOptions) execute(ctx context.Context, opts localrun.Options) (*localrun.Result, error) {
	pool, err := script.NewPool(script.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing scripts: %w", err)
	}
	defer pool.Close()
	guard := egress.New(egress.DeveloperRules())
	servers := guard.Client(egress.MCP, egress.ClientOptions{MaxResponse: mcp.MaxAnswer})
	opts.HTTP = guard.Client(egress.Tool, egress.ClientOptions{MaxResponse: features.MaxResponse})
	defer opts.HTTP.CloseIdleConnections()
	opts.OAuthApps = oauth.NewApps(oauth.AppsConfig{HTTP: opts.HTTP})
	client := mcp.New(mcp.Config{HTTP: servers, Apps: opts.OAuthApps, Version: metrics.Version()})
	defer servers.CloseIdleConnections()
	defer client.Close()
	variables := func() (runnerconfig.Variables, error) { return opts.Variables, nil }
	if err := build.LockTools(ctx, client, variables, opts.Project, opts.Project.Steps(opts.Agent), func(format string, args ...any) {
		fmt.Fprintln(o.messages, printable(fmt.Sprintf(format, args...)))
	}); err != nil {
		return nil, err
	}
	opts.Scripts, opts.MCP = pool, client
	return localrun.Run(ctx, opts)
}

// readOptions reads what the flags name.
func (o *runOptions) readOptions(project *bundle.Project) (opts localrun.Options, err error) {
	opts = localrun.Options{Project: project, Agent: o.agent, Show: (&stepPrinter{out: o.messages}).printStep, Now: o.now}
	if opts.Payload, err = o.readPayload(); err != nil {
		return opts, err
	}
	if opts.Variables, err = o.readVariables(); err != nil {
		return opts, err
	}
	if opts.Headers, err = readHeaders(o.headers); err != nil {
		return opts, err
	}
	if opts.Files, err = readAttachments(o.files); err != nil {
		return opts, err
	}
	apps, missing, err := readOAuthApps(project, os.Getenv)
	if err != nil {
		return opts, err
	}
	printWarnings(o.messages, o.dir, missing)
	opts.Variables = opts.Variables.WithOAuthApps(apps)
	replaced, providers, err := readReplacedModels(project, o.models)
	if err != nil {
		return opts, err
	}
	services, err := readProviders(providers, os.Getenv)
	if err != nil {
		return opts, err
	}
	opts.Models = &replacedModels{Models: newRegistry(services), replaced: replaced}
	if opts.Prices, err = listPrices(services); err != nil {
		return opts, err
	}
	opts.Secrets = findSecrets(project, opts.Variables, services, os.Environ())
	return opts, nil
}

// agentNames returns the names of all agents.
func agentNames(project *bundle.Project) (names []string) {
	for _, a := range project.Agents {
		names = append(names, a.Name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// readHeaders reads headers of the event.
func readHeaders(given []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, text := range given {
		name, value, found := strings.Cut(text, "=")
		if !found {
			return nil, errors.New("--header: must be NAME=VALUE")
		}
		if wrong := settings.CheckContextHeader(name); wrong != "" {
			return nil, fmt.Errorf("--header: %q %s", printable(name), wrong)
		}
		headers[name] = value
	}
	return headers, nil
}

// readAttachments reads the files of the event.
func readAttachments(paths []string) (files []engine.File, err error) {
	for _, path := range paths {
		data, err := os.ReadFile(path) //nolint:gosec // the user's flag
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		kind := filetype.Of(filepath.Base(path), data)
		if kind == "" {
			return nil, fmt.Errorf("--file: %s has a type that is not accepted; an event would omit it", path)
		}
		files = append(files, engine.File{Name: filepath.Base(path), MIMEType: kind, Data: data})
	}
	return files, nil
}

// readOAuthApps returns the OAuth apps that environment variables configure, by the names in the repository. missing has each
// place whose app they do not configure.
func readOAuthApps(project *bundle.Project, getenv func(string) string) (apps []runnerconfig.OAuthApp, missing bundle.Problems, err error) {
	known := map[string]bool{}
	for _, use := range project.OAuthAppUses() {
		configured, seen := known[use.App]
		name := variablePrefix(use.App)
		if !seen {
			app := runnerconfig.OAuthApp{
				Name: use.App, TokenURL: getenv(name + "_TOKEN_URL"), ClientID: getenv(name + "_CLIENT_ID"),
				ClientSecret: getenv(name + "_CLIENT_SECRET"), Scopes: strings.Fields(getenv(name + "_SCOPES")), Audience: getenv(name + "_AUDIENCE"),
			}
			if configured = app.TokenURL != "" || app.ClientID != "" || app.ClientSecret != ""; configured {
				if err := checkOAuthApp(name, app); err != nil {
					return nil, nil, err
				}
				apps = append(apps, app)
			}
			known[use.App] = configured
		}
		if !configured {
			missing = append(missing, bundle.Problem{Position: use.Position, Message: fmt.Sprintf(
				"requests with the OAuth app %q will fail; set %s_TOKEN_URL, %s_CLIENT_ID and %s_CLIENT_SECRET", use.App, name, name, name)})
		}
	}
	return apps, missing, nil
}

// checkOAuthApp returns an error that names the wrong environment variable, never its value.
func checkOAuthApp(name string, app runnerconfig.OAuthApp) error {
	for suffix, value := range map[string]string{"_TOKEN_URL": app.TokenURL, "_CLIENT_ID": app.ClientID, "_CLIENT_SECRET": app.ClientSecret} {
		if value == "" {
			return fmt.Errorf("%s%s: is missing; an OAuth app needs %s_TOKEN_URL, %s_CLIENT_ID and %s_CLIENT_SECRET", name, suffix, name, name, name)
		}
	}
	to, err := url.Parse(app.TokenURL)
	switch {
	case err != nil || to.Host == "" || to.User != nil || to.Scheme != "https" && to.Scheme != "http":
		return fmt.Errorf("%s_TOKEN_URL: must be a URL without credentials, such as https://login.example.com/token", name)
	case to.Scheme == "http" && !isLoopback(to.Hostname()):
		return fmt.Errorf("%s_TOKEN_URL: the client secret would cross the network unencrypted; use https", name)
	}
	return nil
}
