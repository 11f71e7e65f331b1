// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A connector that was just made live is in lists a moment later: so often, and so long in between,
// is looked for one whose URL is to be shown.
const (
	connectorLooks = 5
	connectorPause = time.Second
)

// connectorResult is what became of a connector in the code of a deployment.
type connectorResult struct {
	Connector   string `json:"connector"`
	ConnectorID string `json:"connector_id"`
	Action      string `json:"action"`
	Error       string `json:"error"`
}

// works says that the connector is one of what is live, as the code has it.
func (r connectorResult) works() bool { return r.Error == "" && r.Action != "retired" }

// connectors says what became of the connectors in the code of a deployment that is live or has
// failed, a line for each, with the URL of a webhook. Other programs read it from what is shown.
func (o *deployOptions) connectors(ctx context.Context, d deployment) {
	if o.output != outputText || !d.IsLive && d.Status != "failed" {
		return
	}
	urls := o.api.webhooksOf(ctx, d)
	for _, r := range d.ConnectorResults {
		line := "connector " + printable(r.Connector) + " " + printable(r.Action)
		switch url := urls[r.ConnectorID]; {
		case r.Error != "":
			line += ": " + printable(r.Error)
		case r.works() && url != "":
			line += ": " + printable(url)
		}
		fmt.Fprintln(o.messages, line)
	}
}

// webhooksOf are the URLs of the webhooks in the code of a live deployment by the ids of connectors, as
// far as the key is shown them.
func (r *rest) webhooksOf(ctx context.Context, d deployment) map[string]string {
	wanted := slices.DeleteFunc(slices.Clone(d.ConnectorResults), func(c connectorResult) bool { return !c.works() || c.ConnectorID == "" })
	if !d.IsLive || len(wanted) == 0 {
		return nil
	}
	urls := map[string]string{}
	for look := 1; ; look++ {
		list, err := r.connectors(ctx, d.EnvironmentID)
		if err != nil {
			return urls // one may deploy and see no connectors
		}
		for _, c := range list {
			urls[c.ID] = c.WebhookURL
		}
		missing := slices.ContainsFunc(wanted, func(c connectorResult) bool { _, there := urls[c.ConnectorID]; return !there })
		if !missing || look == connectorLooks || r.wait(ctx, connectorPause) != nil {
			return urls
		}
	}
}
