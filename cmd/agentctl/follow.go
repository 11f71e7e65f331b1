// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// lookEvery is how often a deployment that is followed is asked what keeps it: the log of a
// build that does not begin says nothing.
const lookEvery = 10 * time.Second

// ending follows a deployment to its end: its log, and in messages what keeps it.
func ending(ctx context.Context, api *rest, d deployment, log, messages io.Writer) (deployment, error) {
	looking, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { keeps(looking, api, d.ID, messages) })
	err := follow(ctx, api, d.ID, log)
	stop()
	done.Wait()
	if err != nil {
		return d, err
	}
	return api.deployment(ctx, d.ID)
}

// keeps says what keeps a deployment, whenever that is something else, until ctx ends. A look
// that fails is none: the log is what is followed.
func keeps(ctx context.Context, api *rest, id string, messages io.Writer) {
	said := ""
	for api.wait(ctx, lookEvery) == nil {
		d, err := api.deployment(ctx, id)
		if err != nil || ctx.Err() != nil || !d.open() || d.Message == said {
			continue
		}
		if said = d.Message; said != "" {
			fmt.Fprintf(messages, "%s: %s\n", d.Status, printableLines(said))
		}
	}
}

// followed follows a deployment that was begun to its end, and shows it, unless nobody waits.
func (o *deployOptions) followed(ctx context.Context, d deployment, to string) error {
	fmt.Fprintf(o.messages, "deploying to %s: %s\n", to, d.ID)
	if o.detach {
		return o.show(d)
	}
	both := &lines{w: o.messages}
	d, err := ending(ctx, o.api, d, both, both)
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(o.messages, "the deployment goes on: `agentctl logs -f %s` follows it, `agentctl cancel %s` ends it\n", d.ID, d.ID)
		}
		return err
	}
	if err := o.show(d); err != nil {
		return err
	}
	o.connectors(ctx, d)
	return told(d, to, o.messages)
}

// told tells how a deployment has ended; an error where it is not deployed.
func told(d deployment, to string, messages io.Writer) error {
	switch {
	case d.FailureReason == "tests_failed" || d.FailureReason == "connectors_failed":
		fmt.Fprintf(messages, "with a key that may override this, `agentctl deploy-anyway %s` deploys it all the same\n", d.ID)
		fallthrough
	case d.Status != "deployed":
		return &outcomeError{"the deployment " + ended(d)}
	case !d.IsLive:
		fmt.Fprintf(messages, "deployed, and not live: another deployment of %s was activated meanwhile\n", to)
	default:
		fmt.Fprintf(messages, "%s in %s\n", paint(messages, "live"), to)
	}
	return nil
}

// ended says how a deployment has ended that is not deployed.
func ended(d deployment) string {
	text := "was cancelled"
	if d.Status == "failed" {
		text = "failed (" + d.FailureReason + ")"
	}
	if d.Message != "" {
		text += ": " + printableLines(d.Message)
	}
	return text
}
