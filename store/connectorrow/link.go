// SPDX-License-Identifier: Apache-2.0

package connectorrow

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// SelectLinks selects links l with the objects k that hold their IDs.
const SelectLinks = `SELECT l.id, l.project_id, l.connector_id, l.agent_name, l.files_required, l.outbound,
	l.object_created_at, l.created_at, l.updated_at, ` + object.RefColumns + `
	FROM links l JOIN object_ids k ON k.project_id = l.project_id AND k.id = l.id `

// LinkOrder orders links l, oldest first.
const LinkOrder = `l.object_created_at, l.id`

// ScanLink reads a link.
func ScanLink(row sqldb.Scanner) (l store.Link, err error) {
	err = row.Scan(append([]any{
		&l.ID, &l.ProjectID, &l.ConnectorID, &l.AgentName, &l.FilesRequired, sqldb.ScanJSON(&l.Outbound),
		sqldb.ScanTime(&l.ObjectCreatedAt), sqldb.ScanTime(&l.CreatedAt), sqldb.ScanTime(&l.UpdatedAt),
	}, object.RefFields(&l.Ref)...)...)
	return l, err
}

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
		WHERE l.project_id = $1 AND c.environment_id = $2 AND l.agent_name IN (`+strings.Join(names, ", ")+`) AND l.outbound IS NOT NULL AND `+Sends+`
		ORDER BY c.shadowed, c.retired, `+LinkOrder, l.Values...)
}
