// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A claim records the drift that the runner reports, for the environment of its token. A failure of the record fails no claim.
func TestClaim_RecordsDrift(t *testing.T) {
	t.Parallel()
	deployment := uuid.New()
	body := fmt.Sprintf(`{"runner_id":"r","drift":[{"deployment_id":%q,"agent":"support","server":"crm","tools":["get"]}]}`, deployment)
	for name, problem := range map[string]error{"recorded": nil, "store is unavailable": errors.New("away"), "invalid": store.ErrInvalid} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{undrifted: problem}
			h := handlerOf(f)
			w := ask(t, h, "a", http.MethodPost, "/v1/claim", body)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			h.drift.records.Wait()
			environment := store.Key{ProjectID: named("a"), ID: named("a")}
			require.Equal(t, map[store.Key][]store.DriftReport{
				environment: {{DeploymentID: deployment, Agent: "support", Server: "crm", Tools: []string{"get"}}},
			}, f.drift)
			require.Equal(t, 1, f.calls("Claim"))
		})
	}
}

// Claims do not wait for the record of drift. A project has one record at a time, and so are log entries about errors.
func TestClaim_RecordsDriftBesideClaim(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(`{"runner_id":"r","drift":[{"deployment_id":%q,"agent":"support","server":"crm"}]}`, uuid.New())
	f := &fake{undrifted: store.ErrInvalid, holdDrift: make(chan struct{})}
	var log bytes.Buffer
	h := New(Options{Store: f, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range maxDriftRecords {
		w := ask(t, h, "a", http.MethodPost, "/v1/claim", body)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	}
	require.Equal(t, maxDriftRecords, f.calls("Claim"))
	require.EqualValues(t, 1, h.drift.slots.Taken())
	close(f.holdDrift)
	h.drift.records.Wait()
	require.Zero(t, h.drift.slots.Taken())
	require.Equal(t, 1, f.calls("RecordDrift"))
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
}

// A request has a limited number of reports, and a report a limited number of tools.
func TestClaim_RejectsTooMuchDrift(t *testing.T) {
	t.Parallel()
	for name, drift := range map[string]string{
		"reports": strings.Repeat(`{},`, 16) + `{}`, "tools": `{"tools":[` + strings.Repeat(`"",`, 16) + `""]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/claim", `{"runner_id":"r","drift":[`+drift+`]}`)
			require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, w.Body.String())
			require.Empty(t, f.drift)
		})
	}
}
