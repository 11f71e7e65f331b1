// SPDX-License-Identifier: Apache-2.0

package object

import (
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// CredentialsOf is what the sealed credentials of a connector are bound to.
func CredentialsOf(connector store.Key) seal.Field {
	return seal.Field{ProjectID: connector.ProjectID, Kind: store.KindConnector, ObjectID: connector.ID, Name: "credentials"}
}
