// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

// sealHeaders returns the sealed headers of the object. It seals new values, and seals unchanged values again if they
// have an earlier key, so that the key can be removed.
func (s *API) sealHeaders(c *rest.Caller, id uuid.UUID, sent, stored map[string]string) (map[string]string, error) {
	fresh, kept, err := keepCredentials("body.config.headers", sent, stored)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, sealed := range kept {
		out[name] = sealed
		if value, anew := s.Keys.OpenOutdated(secrets.HeaderField(c.ProjectID, id, name), sealed); anew {
			fresh[name] = value
		}
	}
	for name, value := range fresh {
		sealed, _, err := s.Keys.Seal(secrets.HeaderField(c.ProjectID, id, name), []byte(value))
		if err != nil {
			return nil, fmt.Errorf("sealing the header %q: %w", name, err)
		}
		out[name] = base64.StdEncoding.EncodeToString(sealed)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// resume ends the pause of an outbound connector.
func (s *API) resume(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) error {
	if !conn.Sends() || !conn.IsEnabled() {
		return nil
	}
	if err := s.Store.ResumeDestination(ctx, c.ObjectKey(conn)); err != nil {
		return fmt.Errorf("resuming the deliveries of connector %q: %w", conn.Name, err)
	}
	return nil
}
