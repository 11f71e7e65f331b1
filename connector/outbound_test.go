// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
)

func TestConfig_AttemptDelays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]time.Duration{
		`{}`:                                   connector.DefaultSchedule,
		`{"retry":{"max_attempts":3}}`:         connector.DefaultSchedule[:3],
		`{"retry":{"schedule_seconds":[0,7]}}`: {0, 7 * time.Second},
		`{"retry":{"schedule_seconds":[0,7],"max_attempts":4}}`: {0, 7 * time.Second, 7 * time.Second, 7 * time.Second},
		`{"retry":{"schedule_seconds":[0,7],"max_attempts":1}}`: {0},
	} {
		t.Run(text, func(t *testing.T) {
			var c connector.Config
			require.NoError(t, json.Unmarshal([]byte(text), &c))
			require.Equal(t, want, c.AttemptDelays())
		})
	}
	var c connector.Config
	c.Retry = &connector.Retry{MaxAttempts: ptr(1000)}
	require.Len(t, c.AttemptDelays(), connector.MaxAttempts)
	require.Equal(t, 15*time.Second, c.Timeout(connector.Outbound))
	c.TimeoutSeconds = ptr(3)
	require.Equal(t, 3*time.Second, c.Timeout(connector.Outbound))
	c.TimeoutSeconds = ptr(3000)
	require.Equal(t, connector.MaxTimeout, c.Timeout(connector.Outbound))
	var seconds []float64
	for _, wait := range connector.DefaultSchedule {
		seconds = append(seconds, wait.Seconds())
	}
	require.Equal(t, []float64{0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400}, seconds)
}

func TestCheck_ReportsOutboundProblems(t *testing.T) {
	t.Parallel()
	const fine = "https://example.com:8443/results?team=a"
	for name, c := range map[string]struct {
		config connector.Config
		field  string
	}{
		"fine":                  {connector.Config{URL: fine, TimeoutSeconds: ptr(60), Retry: &connector.Retry{MaxAttempts: ptr(20), ScheduleSeconds: []int{0, 86400}}}, ""},
		"plain http":            {connector.Config{URL: "http://10.0.0.1/"}, ""},
		"no url":                {connector.Config{}, "url"},
		"another scheme":        {connector.Config{URL: "ftp://example.com"}, "url"},
		"no host":               {connector.Config{URL: "https:///results"}, "url"},
		"only a port":           {connector.Config{URL: "https://:443/"}, "url"},
		"a password":            {connector.Config{URL: "https://a:CANARY@example.com"}, "url"},
		"a fragment":            {connector.Config{URL: fine + "#CANARY"}, "url"},
		"a control character":   {connector.Config{URL: "https://example.com/\n"}, "url"},
		"too long":              {connector.Config{URL: fine + strings.Repeat("a", 2048)}, "url"},
		"too patient":           {connector.Config{URL: fine, TimeoutSeconds: ptr(61)}, "timeout_seconds"},
		"too many attempts":     {connector.Config{URL: fine, Retry: &connector.Retry{MaxAttempts: ptr(21)}}, "retry.max_attempts"},
		"too long a schedule":   {connector.Config{URL: fine, Retry: &connector.Retry{ScheduleSeconds: make([]int, 21)}}, "retry.schedule_seconds"},
		"too long a wait":       {connector.Config{URL: fine, Retry: &connector.Retry{ScheduleSeconds: []int{86401}}}, "retry"},
		"a first wait":          {connector.Config{URL: fine, Retry: &connector.Retry{ScheduleSeconds: []int{5, 10}}}, "retry"},
		"a wait that is past":   {connector.Config{URL: fine, Retry: &connector.Retry{ScheduleSeconds: []int{-1}}}, "retry"},
		"attempts that are not": {connector.Config{URL: fine, Retry: &connector.Retry{MaxAttempts: ptr(-1)}}, "retry.max_attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := connector.Outbound.Check(c.config)
			if c.field == "" {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Equal(t, c.field, wrong[0].Field)
			require.NotContains(t, wrong[0].Problem, "CANARY")
		})
	}
}

func TestCheckHeaders_RejectsReservedNames(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range connector.MaxHeaders + 1 {
		many["X-"+strings.Repeat("a", i)] = "b"
	}
	for name, c := range map[string]struct {
		headers map[string]string
		problem string
	}{
		"fine":              {map[string]string{"Authorization": "Bearer a", "x-team": "b", "Hostess": "c", "User-Agent": "d"}, ""},
		"a signature":       {map[string]string{"x-service-Signature": "CANARY"}, "the platform sets"},
		"of the standard":   {map[string]string{"Webhook-Id": "CANARY"}, "the platform sets"},
		"of the body":       {map[string]string{"Content-Length": "CANARY"}, "the platform sets"},
		"host":              {map[string]string{"host": "CANARY"}, "the platform sets"},
		"of the connection": {map[string]string{"Transfer-Encoding": "CANARY"}, "the platform sets"},
		"no name":           {map[string]string{"X Y": "CANARY"}, "not the name of a header"},
		"twice":             {map[string]string{"X-A": "CANARY", "x-a": "CANARY"}, "twice"},
		"a line break":      {map[string]string{"X-A": "CANARY\r\nX-B: c"}, "control character"},
		"long":              {map[string]string{"X-A": strings.Repeat("CANARY", connector.MaxHeader)}, "longer"},
		"a long name":       {map[string]string{strings.Repeat("X", connector.MaxHeaderName+1): "CANARY"}, "of a header's name"},
		"many":              {many, "at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := connector.CheckHeaders(c.headers)
			if c.problem == "" {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Equal(t, "headers", wrong[0].Field)
			require.Contains(t, wrong[0].Problem, c.problem)
			require.NotContains(t, wrong[0].Problem, "CANARY")
		})
	}
}

func ptr[T any](v T) *T { return &v }
