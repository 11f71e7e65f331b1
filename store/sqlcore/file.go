// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// FilesColumn returns an event's files for the row of its input, nil without any, and the total
// bytes of accepted files.
func FilesColumn(files []store.File) (text *string, size int64) {
	if len(files) == 0 {
		return nil, 0
	}
	for _, f := range files {
		size += f.Size
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(files) // always encodes
	column := sqldb.Text(out.String())
	return &column, size
}

// KeepFiles marks the blobs of events' accepted files, in the accepting transaction. ErrNotFound if
// one is missing or incomplete.
func (c *Core) KeepFiles(ctx context.Context, tx *sqldb.Tx, events []store.Event) error {
	for _, e := range events {
		var blobs []store.Key
		for _, f := range e.Files {
			if f.Blob != nil {
				blobs = append(blobs, store.Key{ProjectID: e.ProjectID, ID: *f.Blob})
			}
		}
		if err := c.MarkBlobs(ctx, tx, blobs); err != nil {
			return err
		}
	}
	return nil
}
