// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// SendingLink is a link of an agent to an outbound connector of an environment.
type SendingLink struct {
	ID, Connector uuid.UUID
	Agent         string
	Policy        store.OutboundPolicy
	ConnectorName string
	Ref           store.ObjectRef
	// Effective means that its connector has its name and is not retired.
	Effective, Retired bool
}

// SendingLinks returns the links of agents: effective ones first, then by age. Links whose
// connector waits for its name count towards the limits too, because they may become effective at
// any time.
func SendingLinks(ctx context.Context, q sqldb.Queryer, project, environment uuid.UUID, agents ...string) ([]SendingLink, error) {
	l := sqldb.Args{Values: []any{project, environment}}
	names := make([]string, len(agents))
	for i, agent := range agents {
		names[i] = l.Add(agent)
	}
	return sqldb.Collect(ctx, q, func(row sqldb.Scanner) (l SendingLink, err error) {
		err = row.Scan(append([]any{&l.ID, &l.Connector, &l.Agent, sqldb.ScanJSON(&l.Policy), &l.ConnectorName, &l.Effective, &l.Retired}, object.RefFields(&l.Ref)...)...)
		return l, err
	}, `SELECT l.id, l.connector_id, l.agent_name, l.outbound, c.name, NOT c.shadowed AND NOT c.retired, c.retired, `+object.RefColumns+`
		FROM links l JOIN connectors c ON c.project_id = l.project_id AND c.id = l.connector_id
		JOIN object_ids k ON k.project_id = l.project_id AND k.id = l.id
		WHERE l.project_id = $1 AND c.environment_id = $2 AND l.agent_name IN (`+strings.Join(names, ", ")+`) AND l.outbound IS NOT NULL AND c.mode = 'outbound'
		ORDER BY c.shadowed, c.retired, `+runrow.LinkOrder, l.Values...)
}

// checkOutbound returns why a link cannot send for its agent: a *store.ActionTakenError or a
// *store.TooManyOutboundLinksError. A lock serializes writes of a project's links.
func checkOutbound(ctx context.Context, tx *sqldb.Tx, l store.Link) (refused, err error) {
	if l.Outbound == nil {
		return nil, nil
	}
	var environment uuid.UUID
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT environment_id FROM connectors WHERE project_id = $1 AND id = $2 AND NOT retired`, l.ProjectID, l.ConnectorID).Scan(&environment))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // it sends nothing; dropSurplus checks it when it does
	}
	if err != nil {
		return nil, err
	}
	links, err := SendingLinks(ctx, tx, l.ProjectID, environment, l.AgentName)
	if err != nil {
		return nil, err
	}
	others, there := 0, false
	for _, other := range links {
		switch {
		case other.ID == l.ID:
			there = true // and needs no further place
		case other.Retired:
		case l.Outbound.Mode == store.LinkAgentTool && other.Policy.Mode == store.LinkAgentTool && other.Policy.ActionName == l.Outbound.ActionName:
			return &store.ActionTakenError{Name: l.Outbound.ActionName, Holder: other.Ref}, nil
		default:
			others++
		}
	}
	if others >= store.MaxOutboundLinks && !there {
		return &store.TooManyOutboundLinksError{}, nil
	}
	return nil, nil
}

// dropSurplus takes links of an outbound connector out of effect when the connector comes into
// effect, if their agents have reached the limit without them or have another tool with their name.
// Links may exist before their connector. Their controllers then reconcile them.
func dropSurplus(ctx context.Context, tx *sqldb.Tx, connector store.Connector) error {
	own, err := sqldb.Collect(ctx, tx, ScanLink, SelectLinks+`WHERE l.project_id = $1 AND l.connector_id = $2 AND l.outbound IS NOT NULL`,
		connector.ProjectID, connector.ID)
	if err != nil || len(own) == 0 {
		return err
	}
	agents := make([]string, len(own)) // each has one link to a connector
	for i, l := range own {
		agents[i] = l.AgentName
	}
	all, err := SendingLinks(ctx, tx, connector.ProjectID, connector.EnvironmentID, agents...)
	if err != nil {
		return err
	}
	type tool struct{ agent, name string }
	of, tools := map[string]int{}, map[tool]int{}
	for _, l := range all {
		if l.Retired {
			continue
		}
		of[l.Agent]++
		if l.Policy.Mode == store.LinkAgentTool {
			tools[tool{l.Agent, l.Policy.ActionName}]++
		}
	}
	for _, l := range own {
		twice := l.Outbound.Mode == store.LinkAgentTool && tools[tool{l.AgentName, l.Outbound.ActionName}] > 1
		if of[l.AgentName] <= store.MaxOutboundLinks && !twice {
			continue
		}
		if err := removeLink(ctx, tx, l.Key()); err != nil {
			return err
		}
	}
	return nil
}
