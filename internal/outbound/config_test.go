// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/outbound"
)

func TestConfig_Schedule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]time.Duration{
		`{}`:                                   outbound.DefaultSchedule,
		`{"retry":{"max_attempts":3}}`:         outbound.DefaultSchedule[:3],
		`{"retry":{"schedule_seconds":[0,7]}}`: {0, 7 * time.Second},
		`{"retry":{"schedule_seconds":[0,7],"max_attempts":4}}`: {0, 7 * time.Second, 7 * time.Second, 7 * time.Second},
		`{"retry":{"schedule_seconds":[0,7],"max_attempts":1}}`: {0},
	} {
		t.Run(text, func(t *testing.T) {
			var c outbound.Config
			require.NoError(t, json.Unmarshal([]byte(text), &c))
			require.Equal(t, want, c.Schedule())
		})
	}
	var c outbound.Config
	c.Retry.MaxAttempts = 1000
	require.Len(t, c.Schedule(), outbound.MaxAttempts)
	require.Equal(t, outbound.DefaultTimeout, c.Timeout())
	c.TimeoutSeconds = 3
	require.Equal(t, 3*time.Second, c.Timeout())
	c.TimeoutSeconds = 3000
	require.Equal(t, outbound.MaxTimeout, c.Timeout())
	var seconds []float64
	for _, wait := range outbound.DefaultSchedule {
		seconds = append(seconds, wait.Seconds())
	}
	require.Equal(t, []float64{0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400}, seconds)
}

func TestConfig_CheckReportsProblems(t *testing.T) {
	t.Parallel()
	const fine = "https://example.com:8443/results?team=a"
	for name, c := range map[string]struct {
		config outbound.Config
		field  outbound.Field
	}{
		"fine":                  {outbound.Config{URL: fine, TimeoutSeconds: 60, Retry: outbound.Retry{MaxAttempts: 20, ScheduleSeconds: []int{0, 86400}}}, ""},
		"plain http":            {outbound.Config{URL: "http://10.0.0.1/"}, ""},
		"no url":                {outbound.Config{}, outbound.FieldURL},
		"another scheme":        {outbound.Config{URL: "ftp://example.com"}, outbound.FieldURL},
		"no host":               {outbound.Config{URL: "https:///results"}, outbound.FieldURL},
		"only a port":           {outbound.Config{URL: "https://:443/"}, outbound.FieldURL},
		"a password":            {outbound.Config{URL: "https://a:CANARY@example.com"}, outbound.FieldURL},
		"a fragment":            {outbound.Config{URL: fine + "#CANARY"}, outbound.FieldURL},
		"a control character":   {outbound.Config{URL: "https://example.com/\n"}, outbound.FieldURL},
		"too long":              {outbound.Config{URL: fine + strings.Repeat("a", outbound.MaxURL)}, outbound.FieldURL},
		"too patient":           {outbound.Config{URL: fine, TimeoutSeconds: 61}, outbound.FieldTimeout},
		"too many attempts":     {outbound.Config{URL: fine, Retry: outbound.Retry{MaxAttempts: 21}}, outbound.FieldRetry},
		"too long a schedule":   {outbound.Config{URL: fine, Retry: outbound.Retry{ScheduleSeconds: make([]int, 21)}}, outbound.FieldRetry},
		"too long a wait":       {outbound.Config{URL: fine, Retry: outbound.Retry{ScheduleSeconds: []int{86401}}}, outbound.FieldRetry},
		"a first wait":          {outbound.Config{URL: fine, Retry: outbound.Retry{ScheduleSeconds: []int{5, 10}}}, outbound.FieldRetry},
		"a wait that is past":   {outbound.Config{URL: fine, Retry: outbound.Retry{ScheduleSeconds: []int{-1}}}, outbound.FieldRetry},
		"attempts that are not": {outbound.Config{URL: fine, Retry: outbound.Retry{MaxAttempts: -1}}, outbound.FieldRetry},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := c.config.Check()
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
	for i := range outbound.MaxHeaders + 1 {
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
		"long":              {map[string]string{"X-A": strings.Repeat("CANARY", outbound.MaxHeader)}, "longer"},
		"a long name":       {map[string]string{strings.Repeat("X", outbound.MaxHeaderName+1): "CANARY"}, "of a header's name"},
		"many":              {many, "at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := outbound.CheckHeaders(c.headers)
			if c.problem == "" {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Equal(t, outbound.FieldHeaders, wrong[0].Field)
			require.Contains(t, wrong[0].Problem, c.problem)
			require.NotContains(t, wrong[0].Problem, "CANARY")
		})
	}
}
