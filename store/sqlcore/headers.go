// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// HeadersColumn returns an event's headers for the row of its input, nil without any.
func HeadersColumn(headers map[string]string) *string {
	if len(headers) == 0 {
		return nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(headers) // always encodes
	column := sqldb.Text(out.String())
	return &column
}

// TraceparentColumn returns a traceparent for a row, nil without one.
func TraceparentColumn(traceparent string) *string {
	if traceparent == "" {
		return nil
	}
	return &traceparent
}

// RunHeaders implements store.History.
func (c *Core) RunHeaders(ctx context.Context, run store.Key) (headers map[string]string, err error) {
	input, err := c.inputOf(ctx, run)
	if err == nil {
		err = c.ReadHistory(ctx, c.engine.Reader(), store.Key{ProjectID: run.ProjectID, ID: input},
			`SELECT headers FROM {inputs} WHERE project_id = $1 AND id = $2`, sqldb.ScanJSON(&headers))
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil // the run exists, but its input is no longer kept
		}
	}
	return headers, sqldb.Wrap(err, "reading the headers of run %s", run)
}
