// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

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
