// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"github.com/danielgtaylor/huma/v2"
)

// ConnectorPath names a connector.
type ConnectorPath struct {
	ProjectPath
	ConnectorID ID `path:"connector_id" resource:"connector" doc:"The connector."`
}

// ConnectorType is the type of a connector.
type ConnectorType string

// Schema describes the type.
func (ConnectorType) Schema(r huma.Registry) *huma.Schema {
	return Enumeration(r, "ConnectorType", "The type of a connector: webhook receives events at a URL, cron creates events on a schedule.", "webhook", "cron")
}

// ConnectorMode is the direction of a connector.
type ConnectorMode string

// Schema describes the mode.
func (ConnectorMode) Schema(r huma.Registry) *huma.Schema {
	return Enumeration(r, "ConnectorMode", "The direction of a connector: inbound responds to an event with run IDs at once, sync responds "+
		"with the agent's result, and outbound sends results.", "inbound", "sync", "outbound")
}
