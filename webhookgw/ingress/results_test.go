// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
	"github.com/agentplatform/agentplatform/store"
)

// TestResults_RoundTrip: for all characters and at each cut.
func TestResults_RoundTrip(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{
		"none": "", "text": "hello", "HTML": "<b>&\u2028</b>", "control": "\x00\n\t\"\\\x7f", "characters": strings.Repeat("äé€😀", maxPiece),
		"shifted": "x" + strings.Repeat("€", maxPiece), "no text": strings.Repeat("\x80", 3*maxPiece), "cut": strings.Repeat("x", maxPiece-1) + "\xf0\x9f",
	} {
		t.Run(name, func(t *testing.T) {
			runs := []store.Run{
				{ID: uuid.New(), AgentName: "first", Status: store.RunFailed, Output: output, Error: "<why>"},
				{ID: uuid.New(), AgentName: "second", Status: store.RunCompleted, Output: output, FinishReason: "length"},
			}
			var written bytes.Buffer
			r := newResultWriter(&written)
			r.beginResults(runs[0], nil)
			for _, run := range runs {
				r.addResult(run)
			}
			require.NoError(t, r.endResults())
			type result struct {
				RunID     uuid.UUID `json:"run_id"`
				AgentName string    `json:"agent_name"`
				Status    string    `json:"status"`
				Output    string    `json:"output"`
				Finish    *string   `json:"finish_reason"`
				Error     *string   `json:"error"`
			}
			why, cut, want := "<why>", "length", "" // as in one part
			whole, err := json.Marshal(output)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(whole, &want))
			all := []result{{runs[0].ID, "first", "failed", want, nil, &why}, {runs[1].ID, "second", "completed", want, &cut, nil}}
			var got struct {
				Status  string
				Result  result
				Results []result
			}
			require.NoError(t, json.Unmarshal(written.Bytes(), &got))
			require.Equal(t, "failed", got.Status)
			require.Equal(t, all[0], got.Result)
			require.Equal(t, all, got.Results)
			require.NotContains(t, written.String(), `\u003c`, "the response is no HTML page")
		})
	}
}

// TestResults_UseNoMemory: however large an output is.
func TestResults_UseNoMemory(t *testing.T) { // not parallel, because it measures memory
	run := store.Run{Status: store.RunCompleted, Output: strings.Repeat("<\x00", store.MaxOutput/2)}
	most := uint64(store.MaxOutput / 8)
	if raced {
		most *= 1000 // the memory of encoding/json too
	}
	memtest.AtMost(t, most, func() {
		r := newResultWriter(io.Discard)
		r.beginResults(run, nil)
		r.addResult(run)
		require.NoError(t, r.endResults())
	})
}
