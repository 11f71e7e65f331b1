// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"encoding/json"

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
