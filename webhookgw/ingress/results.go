// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// maxPiece is the number of bytes of an output that are encoded at a time.
const maxPiece = 4 << 10

// resultWriter streams the response of a sync webhook, a webhookapi.Results. An output uses no
// additional memory, however large it is. Flush returns the first error.
type resultWriter struct {
	*bufio.Writer
	piece   bytes.Buffer
	encoder *json.Encoder
	more    bool // a result was written
}

func newResultWriter(w io.Writer) *resultWriter {
	r := &resultWriter{Writer: bufio.NewWriter(w)}
	r.encoder = json.NewEncoder(&r.piece)
	r.encoder.SetEscapeHTML(false) // the response is no HTML page
	return r
}

// beginResults writes everything except the results. first is the main result of the response.
func (r *resultWriter) beginResults(first store.Run, files *webhookapi.Files) {
	status := "ok"
	if first.Status != store.RunCompleted {
		status = string(first.Status)
	}
	r.writeText(`{"status":`)
	r.writeValue(status)
	if files != nil {
		r.writeText(`,"accepted":`)
		r.writeValue(files.Accepted)
		r.writeText(`,"omitted":`)
		r.writeValue(files.Omitted)
		r.writeText(`,"issues":`)
		r.writeValue(files.Issues)
	}
	r.writeText(`,"result":`)
	r.writeResult(first)
	r.writeText(`,"results":[`)
}

// addResult writes one of the results.
func (r *resultWriter) addResult(run store.Run) {
	if r.more {
		r.writeText(`,`)
	}
	r.more = true
	r.writeResult(run)
}

// endResults writes the rest.
func (r *resultWriter) endResults() error {
	r.writeText("]}\n")
	return r.Flush()
}

func (r *resultWriter) writeResult(run store.Run) {
	r.writeText(`{"run_id":`)
	r.writeValue(run.ID)
	r.writeText(`,"agent_name":`)
	r.writeValue(run.AgentName)
	r.writeText(`,"status":`)
	r.writeValue(run.Status)
	r.writeText(`,"output":"`)
	for rest := run.Output; rest != ""; {
		piece := firstBytes(rest)
		rest = rest[len(piece):]
		r.writeJSON(piece, len(`"`))
	}
	r.writeText(`","finish_reason":`)
	r.writeValue(webhookapi.Optional(run.FinishReason))
	r.writeText(`,"error":`)
	text, code := failureText(run)
	r.writeValue(text)
	r.writeText(`,"error_code":`)
	r.writeValue(code)
	r.writeText(`}`)
}

// firstBytes returns the first bytes of a text, up to the end of a character.
func firstBytes(text string) string {
	if len(text) <= maxPiece {
		return text
	}
	end := maxPiece
	for end > maxPiece-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func (r *resultWriter) writeText(s string) { _, _ = r.WriteString(s) }

func (r *resultWriter) writeValue(v any) { r.writeJSON(v, 0) }

// writeJSON writes a value as JSON, without the given number of bytes at both ends.
func (r *resultWriter) writeJSON(v any, without int) {
	r.piece.Reset()
	_ = r.encoder.Encode(v) // texts and IDs never fail
	_, _ = r.Write(r.piece.Bytes()[without : r.piece.Len()-len("\n")-without])
}
