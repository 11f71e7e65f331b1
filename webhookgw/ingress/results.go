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

// maxPiece is how many bytes of an output are made JSON at a time.
const maxPiece = 4 << 10

// results writes the answer to a sync webhook, a webhookapi.Results, while it is being made: however large an output is, it takes no memory but its own.
// The first error is kept, and said by Flush.
type results struct {
	*bufio.Writer
	piece   bytes.Buffer
	encoder *json.Encoder
	more    bool // a result is written
}

func newResults(w io.Writer) *results {
	r := &results{Writer: bufio.NewWriter(w)}
	r.encoder = json.NewEncoder(&r.piece)
	r.encoder.SetEscapeHTML(false) // it is no page
	return r
}

// begin writes all but the results, of which the first is that of the answer.
func (r *results) begin(first store.Run, files *webhookapi.Files) {
	status := "ok"
	if first.Status != store.RunCompleted {
		status = string(first.Status)
	}
	r.text(`{"status":`)
	r.value(status)
	if files != nil {
		r.text(`,"accepted":`)
		r.value(files.Accepted)
		r.text(`,"omitted":`)
		r.value(files.Omitted)
		r.text(`,"issues":`)
		r.value(files.Issues)
	}
	r.text(`,"result":`)
	r.result(first)
	r.text(`,"results":[`)
}

// add writes one of the results.
func (r *results) add(run store.Run) {
	if r.more {
		r.text(`,`)
	}
	r.more = true
	r.result(run)
}

// end writes what is left.
func (r *results) end() error {
	r.text("]}\n")
	return r.Flush()
}

func (r *results) result(run store.Run) {
	r.text(`{"run_id":`)
	r.value(run.ID)
	r.text(`,"agent_name":`)
	r.value(run.AgentName)
	r.text(`,"status":`)
	r.value(run.Status)
	r.text(`,"output":"`)
	for rest := run.Output; rest != ""; {
		piece := beginning(rest)
		rest = rest[len(piece):]
		r.write(piece, len(`"`))
	}
	r.text(`","error":`)
	text, code := failure(run)
	r.value(text)
	r.text(`,"error_code":`)
	r.value(code)
	r.text(`}`)
}

// beginning is what comes first of a text, up to the end of a character.
func beginning(text string) string {
	if len(text) <= maxPiece {
		return text
	}
	end := maxPiece
	for end > maxPiece-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func (r *results) text(s string) { _, _ = r.WriteString(s) }

func (r *results) value(v any) { r.write(v, 0) }

// write writes a value as JSON without so many bytes at both its ends.
func (r *results) write(v any, without int) {
	r.piece.Reset()
	_ = r.encoder.Encode(v) // texts and ids, which it can
	_, _ = r.Write(r.piece.Bytes()[without : r.piece.Len()-len("\n")-without])
}
