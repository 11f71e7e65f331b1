// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
)

// PutProject implements store.Projector.
func (c *Core) PutProject(ctx context.Context, p store.Project) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.claimID(ctx, tx, p.Key(), p.Ref); err != nil {
			return err
		}
		_, err := tx.exec(ctx, `INSERT INTO projects (project_id, display_name, requests_per_minute, created_at, updated_at)
			VALUES ($1, $2, $3, now_us(), now_us())
			ON CONFLICT (project_id) DO UPDATE SET display_name = excluded.display_name,
				requests_per_minute = excluded.requests_per_minute, updated_at = excluded.updated_at`,
			p.ID, Text(p.DisplayName), p.RequestsPerMinute)
		return wrap(err, "projecting %s", p.Ref)
	})
}
