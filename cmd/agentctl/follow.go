// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// statusPoll is how often a followed deployment is read for what it waits for. The log of a build that has not begun does not
// tell.
const statusPoll = 10 * time.Second

// followToEnd copies the log of a deployment to log until the deployment has ended, and writes what it waits for to messages.
func followToEnd(ctx context.Context, api *apiClient, d deployment, log, messages io.Writer) (deployment, error) {
	polling, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { reportMessages(polling, api, d.Value.ID, messages) })
	err := copyLog(ctx, api, d.Value.ID, log)
	stop()
	done.Wait()
	if err != nil {
		return d, err
	}
	return api.readDeployment(ctx, d.Value.ID)
}

// copyLog copies the log of a build to out until the deployment has ended.
func copyLog(ctx context.Context, api *apiClient, id string, out io.Writer) error {
	for part, err := range api.DeploymentLog(ctx, id) {
		if err == nil {
			_, err = io.WriteString(out, printableLines(part))
		}
		if err != nil {
			return fmt.Errorf("following the log of deployment %s: %w", id, err)
		}
	}
	return nil
}

// reportMessages writes the message of an open deployment whenever it changes, until ctx ends. It ignores errors, because
// following the log reports them.
func reportMessages(ctx context.Context, api *apiClient, id string, messages io.Writer) {
	reported := ""
	for api.Wait(ctx, statusPoll) == nil {
		d, err := api.readDeployment(ctx, id)
		if err != nil || ctx.Err() != nil || !d.isOpen() || d.message() == reported {
			continue
		}
		if reported = d.message(); reported != "" {
			fmt.Fprintf(messages, "%s: %s\n", d.Value.Status, printableLines(reported))
		}
	}
}

// followDeployment follows a new deployment to its end and prints it, unless the user asked not to wait.
func (o *deployOptions) followDeployment(ctx context.Context, d deployment, environment string) error {
	id := d.Value.ID
	fmt.Fprintf(o.messages, "deploying to %s: %s\n", environment, id)
	if o.detach {
		return o.printDeployment(d)
	}
	both := &syncWriter{w: o.messages}
	d, err := followToEnd(ctx, o.api, d, both, both)
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(o.messages, "the deployment continues: `agentctl logs -f %s` follows it, `agentctl cancel %s` ends it\n", id, id)
		}
		return err
	}
	if err := o.printDeployment(d); err != nil {
		return err
	}
	o.printConnectors(ctx, d)
	return reportOutcome(d, environment, o.messages)
}

// reportOutcome writes how a deployment ended. It returns an error unless the deployment is deployed.
func reportOutcome(d deployment, environment string, messages io.Writer) error {
	switch reason := restclient.ValueOf(d.Value.FailureReason); {
	case reason == restclient.FailureReasonTestsFailed || reason == restclient.FailureReasonConnectorsFailed:
		fmt.Fprintf(messages, "with a key that may override this, `agentctl deploy-anyway %s` deploys it all the same\n", d.Value.ID)
		fallthrough
	case !d.isDeployed():
		return &outcomeError{"the deployment " + describeFailure(d)}
	case !d.Value.IsLive:
		fmt.Fprintf(messages, "deployed, but not live: another deployment of %s was activated meanwhile\n", environment)
	default:
		fmt.Fprintf(messages, "%s in %s\n", paintStatus(messages, "live"), environment)
	}
	return nil
}

// describeFailure tells how a deployment ended that is not deployed.
func describeFailure(d deployment) string {
	text := "was cancelled"
	if d.Value.Status == restclient.DeploymentStatusFailed {
		text = "failed (" + string(restclient.ValueOf(d.Value.FailureReason)) + ")"
	}
	if d.message() != "" {
		text += ": " + printableLines(d.message())
	}
	return text
}

// syncWriter lets several goroutines write to one writer.
type syncWriter struct {
	mutex sync.Mutex
	w     io.Writer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.w.Write(p)
}

func newLogsCommand() *cobra.Command {
	o := &deployOptions{}
	follow := false
	cmd := o.newCommand(&cobra.Command{
		Use:   "logs DEPLOYMENT",
		Short: "Show the build log of a deployment",
		Long: `Show the build log of a deployment. With -f the command follows the log until the deployment
has ended, shows what the deployment waits for, and reports how it ended.`,
		Example: `  agentctl logs 2fd4e1c6
  agentctl logs -f 2fd4e1c6 --environment production`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("DEPLOYMENT: name one deployment by its commit or its ID, as shown by `agentctl status --environment ENVIRONMENT`")
			}
			return nil
		},
	}, func(ctx context.Context, args []string) error {
		id, err := o.api.findDeployment(ctx, o.environment, args[0], purpose{})
		if err != nil {
			return err
		}
		d, err := o.api.readDeployment(ctx, id)
		if err != nil {
			return err
		}
		if follow {
			if d, err = followToEnd(ctx, o.api, d, o.out, o.messages); err != nil {
				return err
			}
			return reportOutcome(d, o.api.environmentName(ctx, d), o.messages)
		}
		log := restclient.ValueOf(d.Value.BuildLogs)
		if o.output != outputText {
			return o.printValue(o.out, map[string]string{"build_logs": log})
		}
		_, err = io.WriteString(o.out, printableLines(log))
		return err
	})
	setOutcome(cmd, "the deployment that -f followed failed or was cancelled")
	bindLookup(cmd.Flags(), &o.environment)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the deployment has ended")
	cmd.MarkFlagsMutuallyExclusive("follow", "output")
	return cmd
}

// A connector appears in lists a moment after it goes live. A command that shows its URL lists the connectors connectorLooks
// times, with pauses of connectorPause.
const (
	connectorLooks = 5
	connectorPause = time.Second
)

// isApplied reports whether the live connector is the one of the code.
func isApplied(r restclient.ConnectorResult) bool {
	return restclient.ValueOf(r.Error) == "" && r.Action != restclient.ConnectorActionRetired
}

// printConnectors writes a line for each connector in the code of a deployment that is live or has failed, with the URL of a
// webhook. The other formats have the results in the deployment.
func (o *deployOptions) printConnectors(ctx context.Context, d deployment) {
	if o.output != outputText || !d.Value.IsLive && d.Value.Status != restclient.DeploymentStatusFailed {
		return
	}
	urls := o.api.webhookURLs(ctx, d)
	for _, r := range d.Value.ConnectorResults {
		line := "connector " + printable(r.Connector) + " " + printable(string(r.Action))
		problem, url := restclient.ValueOf(r.Error), urls[restclient.ValueOf(r.ConnectorID)]
		switch {
		case problem != "":
			line += ": " + printable(problem)
		case isApplied(r) && url != "":
			line += ": " + printable(url)
		}
		fmt.Fprintln(o.messages, line)
	}
}

// webhookURLs returns the URLs of the webhooks in the code of a live deployment by the IDs of the connectors, as far as the key
// can see them.
func (c *apiClient) webhookURLs(ctx context.Context, d deployment) map[string]string {
	wanted := slices.DeleteFunc(slices.Clone(d.Value.ConnectorResults), func(r restclient.ConnectorResult) bool {
		return !isApplied(r) || restclient.ValueOf(r.ConnectorID) == ""
	})
	if !d.Value.IsLive || len(wanted) == 0 {
		return nil
	}
	urls := map[string]string{}
	for look := 1; ; look++ {
		list, err := c.listConnectors(ctx, restclient.Environment{ID: d.Value.EnvironmentID})
		if err != nil {
			return urls // A key that can deploy may be unable to see connectors.
		}
		for _, listed := range list {
			urls[listed.Value.ID] = restclient.ValueOf(listed.Value.WebhookURL)
		}
		missing := slices.ContainsFunc(wanted, func(r restclient.ConnectorResult) bool {
			_, listed := urls[restclient.ValueOf(r.ConnectorID)]
			return !listed
		})
		if !missing || look == connectorLooks || c.Wait(ctx, connectorPause) != nil {
			return urls
		}
	}
}
