// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
)

func TestKindOf_NeedsTypeAndMode(t *testing.T) {
	t.Parallel()
	for _, k := range connector.Kinds() {
		t.Run(string(k), func(t *testing.T) { require.Equal(t, k, connector.KindOf(k.Type(), k.Mode())) })
	}
	for typeName, mode := range map[string]string{"cron": "sync", "webhook": "cron", "mail": "inbound", "": ""} {
		t.Run(typeName+" "+mode, func(t *testing.T) { require.Empty(t, connector.KindOf(typeName, mode)) })
	}
}

// Each kind has all facts: callers or a way to start runs of its own, or something to send, and its words.
func TestKinds_HaveTheirFacts(t *testing.T) {
	t.Parallel()
	for _, k := range connector.Kinds() {
		t.Run(string(k), func(t *testing.T) {
			require.NotEqual(t, k.Sends(), k.StartsRuns())
			require.False(t, k.Sends() && k.HasCallers())
			require.True(t, k.HasCallers() || !k.Answers())
			require.NotEmpty(t, k.Does())
			require.NotEmpty(t, k.Works())
			require.NotEmpty(t, k.Fields())
			require.Contains(t, connector.KindsOf(k.Type()), k)
		})
	}
	require.Equal(t, "inbound, sync and cron", connector.NamesOf(connector.Kind.StartsRuns, "and"))
	require.Equal(t, "inbound or sync", connector.NamesOf(connector.Kind.HasCallers, "or"))
	require.Equal(t, []string{"inbound", "sync", "outbound"}, connector.Modes(connector.Kind.IsKnown))
	require.Equal(t, "sync webhook, webhook of mode sync, cron, cron connector", fmt.Sprintf("%s, %s, %s, %s",
		connector.Sync, connector.Sync.Noun(), connector.Cron, connector.Cron.Noun()))
	require.Empty(t, connector.Kind("").String())
	require.False(t, connector.Kind("").StartsRuns())
}

// A response has each setting of its kind, and settings with their defaults pass the check of the kind.
func TestConfig_WithDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind           connector.Kind
		config, values string
		timeout        time.Duration
	}{
		{connector.Inbound, `{}`, `{"authentication":"secret","require_authentication":true,"context_headers":[],"files_required":false}`, 0},
		{connector.Inbound, `{"require_authentication":false,"context_headers":["X-A","x-a"]}`,
			`{"authentication":"none","require_authentication":false,"context_headers":["x-a"],"files_required":false}`, 0},
		{connector.Sync, `{"authentication":"github"}`,
			`{"authentication":"github","require_authentication":true,"context_headers":[],"files_required":false,"timeout_seconds":300}`, 5 * time.Minute},
		{connector.Outbound, `{"url":"https://example.com","retry":{"max_attempts":2}}`,
			`{"url":"https://example.com","headers":{},"timeout_seconds":15,"retry":{"max_attempts":2,"schedule_seconds":[0,5]}}`, 15 * time.Second},
		{connector.Cron, `{"schedule":"@daily"}`, `{"schedule":"@daily","timezone":"UTC","missed_ticks":"skip","prompt":"","payload":{}}`, 0},
	} {
		t.Run(string(c.kind)+" "+c.config, func(t *testing.T) {
			var config connector.Config
			require.NoError(t, json.Unmarshal([]byte(c.config), &config))
			full := config.WithDefaults(c.kind)
			text, err := json.Marshal(full.Values(c.kind))
			require.NoError(t, err)
			require.JSONEq(t, c.values, string(text))
			require.Empty(t, c.kind.Check(full))
			require.Equal(t, c.timeout, config.Timeout(c.kind))
		})
	}
}

// Each setting that breaks its tags is reported once.
func TestCheck_ReportsTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind          connector.Kind
		config, field string
	}{
		{connector.Inbound, `{"authentication":"letter"}`, "authentication"},
		{connector.Inbound, `{"authentication":"none","require_authentication":true}`, "require_authentication"},
		{connector.Inbound, `{"context_headers":["Cookie"]}`, "context_headers"},
		{connector.Sync, `{"timeout_seconds":901}`, "timeout_seconds"},
		{connector.Sync, `{"timeout_seconds":0}`, "timeout_seconds"},
		{connector.Cron, `{"schedule":"@daily","missed_ticks":"all"}`, "missed_ticks"},
		{connector.Cron, `{}`, "schedule"},
		{connector.Cron, `{"schedule":"@daily","prompt":"` + strings.Repeat("é", 16<<10) + `"}`, ""},
		{connector.Cron, `{"schedule":"@daily","prompt":"` + strings.Repeat("é", 16<<10+1) + `"}`, "prompt"},
		{connector.Cron, `{"schedule":"` + strings.Repeat("0", 252) + ` * * * *"}`, "schedule"},
		{connector.Inbound, `{"context_headers":["a"` + strings.Repeat(`,"a"`, 15) + `]}`, ""},
		{connector.Inbound, `{"context_headers":["a"` + strings.Repeat(`,"a"`, 16) + `]}`, "context_headers"},
	} {
		t.Run(fmt.Sprintf("%s %.60s", c.kind, c.config), func(t *testing.T) {
			var config connector.Config
			require.NoError(t, json.Unmarshal([]byte(c.config), &config))
			problems := c.kind.Check(config)
			if c.field == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, c.field, problems[0].Field)
		})
	}
}

// All problems of the headers are reported, and a long name is cut.
func TestCheck_ReportsAllHeaders(t *testing.T) {
	t.Parallel()
	long := "Webhook-" + strings.Repeat("a", 500)
	problems := connector.Outbound.Check(connector.Config{URL: "https://example.com", Headers: map[string]string{"Host": "a", "X Y": "b", long: "c"}})
	require.Len(t, problems, 3)
	for _, problem := range problems {
		require.Equal(t, "headers", problem.Field)
		require.Less(t, len(problem.Problem), 200)
	}
	require.NotEmpty(t, connector.Kind("").Check(connector.Config{}))
}
