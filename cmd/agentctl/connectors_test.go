// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
)

// Connectors lists the connectors of all environments, or of one, with their ticks.
func TestConnectors_ListsEnvironments(t *testing.T) {
	t.Parallel()
	key, project := keys.Generate().String(), uuid.NewString()
	production, staging := uuid.NewString(), uuid.NewString()
	connectors := map[string]string{
		production: `[{"id":"1","name":"Weekly\u001b report","type":"cron","mode":"inbound","enabled":true,"next_tick_at":"2026-07-06T05:00:00Z","last_tick_at":"2026-06-29T05:00:00Z"},
			{"id":"2","name":"Tickets","type":"webhook","mode":"sync","enabled":false}]`,
		staging: `[{"id":"3","name":"Results","type":"webhook","mode":"outbound","enabled":true,"disabled_reason":"410 Gone"},
			{"id":"4","name":"Old","type":"webhook","mode":"inbound","enabled":true,"retired":true}]`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/v1/projects/"+project) {
		case "/environments":
			fmt.Fprintf(w, `[{"id":%q,"slug":"production"},{"id":%q,"slug":"staging"}]`, production, staging)
		case "/connectors":
			_, _ = io.WriteString(w, connectors[r.URL.Query().Get("environment_id")])
		default:
			problemAnswer(http.StatusForbidden, "forbidden")(w)
		}
	}))
	t.Cleanup(server.Close)
	list := func(args ...string) (string, error) {
		out, _, err := run(t, append([]string{"connectors", "--server", server.URL, "--project", project, "--api-key", key}, args...)...)
		return out, err
	}
	out, err := list()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5)
	for i, want := range []string{
		"ENVIRONMENT NAME TYPE MODE ENABLED LAST TICK NEXT TICK ID",
		`production Weekly\u001b report cron inbound yes 2026-06-29T05:00:00Z 2026-07-06T05:00:00Z 1`,
		"production Tickets webhook sync no - - 2", "staging Results webhook outbound 410 Gone - - 3", "staging Old webhook inbound retired - - 4",
	} {
		require.Equal(t, want, strings.Join(strings.Fields(lines[i]), " "))
	}
	out, err = list("--environment", strings.ToUpper(staging), "-o", "yaml")
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "- "))
	require.Contains(t, out, "disabled_reason: 410 Gone\n")
	out, err = list("-o", "json")
	require.NoError(t, err)
	var shown []struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, []struct{ ID string }{{"1"}, {"2"}, {"3"}, {"4"}}, shown, "one list of all environments")
	for _, environment := range []string{"nothing", uuid.NewString()} {
		_, err = list("--environment", environment)
		require.ErrorContains(t, err, "--environment")
	}
}
