// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// webhook is the route of a connector, with the settings that requests need. Requests share it, so nothing changes it.
type webhook struct {
	store.Route
	kind          connector.Kind
	authenticates bool // callers must authenticate
	// scheme is the provider with whose signature callers authenticate; "" if they send the secret or nothing.
	scheme        signature.Scheme
	filesRequired bool
	timeout       time.Duration // how long a caller of a sync webhook waits
	// contextHeaders are the lower-case names of the headers that runs see.
	contextHeaders []string
}

// newWebhook parses the settings of a route. Without them nobody may call the webhook, so its error rejects requests.
func newWebhook(route store.Route) (*webhook, error) {
	config, err := connector.ParseConfig(route.Connector.Config)
	if err != nil {
		return nil, fmt.Errorf("reading connector %s: %w", route.Connector.Key(), err)
	}
	kind := connector.KindOf(route.Connector.Type, route.Connector.Mode)
	return &webhook{
		Route: route, kind: kind, authenticates: config.RequiresAuthentication(kind), scheme: signature.Scheme(config.Signature(kind)),
		filesRequired: config.RequiresFiles(), timeout: config.Timeout(kind), contextHeaders: config.HeaderNames(),
	}, nil
}

// signsBody reports whether callers sign the body. GitLab sends a token, which is compared like other secrets.
func (c *webhook) signsBody() bool {
	return c.authenticates && c.scheme != "" && c.scheme != signature.GitLab
}
