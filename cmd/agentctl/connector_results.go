// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

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
