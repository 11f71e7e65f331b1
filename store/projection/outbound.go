// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

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
	links, err := connectorrow.SendingLinks(ctx, tx, l.ProjectID, environment, l.AgentName)
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
	own, err := sqldb.Collect(ctx, tx, connectorrow.ScanLink, connectorrow.SelectLinks+`WHERE l.project_id = $1 AND l.connector_id = $2 AND l.outbound IS NOT NULL`,
		connector.ProjectID, connector.ID)
	if err != nil || len(own) == 0 {
		return err
	}
	agents := make([]string, len(own)) // each has one link to a connector
	for i, l := range own {
		agents[i] = l.AgentName
	}
	all, err := connectorrow.SendingLinks(ctx, tx, connector.ProjectID, connector.EnvironmentID, agents...)
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
