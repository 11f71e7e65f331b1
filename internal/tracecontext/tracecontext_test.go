// SPDX-License-Identifier: Apache-2.0

package tracecontext_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/tracecontext"
)

const (
	example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	run     = "019a5c3e-7f00-7000-8000-000000000001"
)

func TestFromHeader_AcceptsVersion00(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		values []string
		want   string
	}{
		"none":            {nil, ""},
		"valid":           {[]string{example}, example},
		"not sampled":     {[]string{example[:53] + "00"}, example[:53] + "00"},
		"other flags":     {[]string{example[:53] + "fe"}, example[:53] + "fe"},
		"two":             {[]string{example, example}, ""},
		"version 01":      {[]string{"01" + example[2:]}, ""},
		"version ff":      {[]string{"ff" + example[2:]}, ""},
		"longer":          {[]string{example + "-00"}, ""},
		"shorter":         {[]string{example[:54]}, ""},
		"upper case":      {[]string{strings.ToUpper(example)}, ""},
		"no digit":        {[]string{"00-" + strings.Repeat("g", 32) + example[35:]}, ""},
		"other separator": {[]string{strings.ReplaceAll(example, "-", "_")}, ""},
		"zero trace":      {[]string{"00-" + strings.Repeat("0", 32) + example[35:]}, ""},
		"zero span":       {[]string{example[:36] + strings.Repeat("0", 16) + example[52:]}, ""},
		"line break":      {[]string{example[:53] + "\r\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, tracecontext.FromHeader(http.Header{tracecontext.Header: row.values}))
		})
	}
}

func TestTraceparentOf_KeepsTraceAndDerivesSpans(t *testing.T) {
	t.Parallel()
	own := tracecontext.TraceparentOf("", run, "")
	for name, row := range map[string]struct{ parent, position, trace, flags string }{
		"of the caller":      {example, "call_1", "4bf92f3577b34da6a3ce929d0e0e4736", "01"},
		"caller without 01":  {example[:53] + "00", "call_1", "4bf92f3577b34da6a3ce929d0e0e4736", "00"},
		"caller with others": {example[:53] + "fa", "call_1", "4bf92f3577b34da6a3ce929d0e0e4736", "00"},
		"own":                {"", "call_1", tracecontext.TraceOf("", run).String(), "01"},
		"invalid":            {"x", "", tracecontext.TraceOf("", run).String(), "01"},
	} {
		t.Run(name, func(t *testing.T) {
			text := tracecontext.TraceparentOf(row.parent, run, row.position)
			require.Equal(t, text, tracecontext.TraceparentOf(row.parent, run, row.position), "the same in each attempt")
			require.Equal(t, "00-"+row.trace+"-"+tracecontext.SpanOf(run, row.position).String()+"-"+row.flags, text)
			_, ok := tracecontext.ParseTraceparent(text)
			require.True(t, ok)
		})
	}
	require.NotEqual(t, own, tracecontext.TraceparentOf("", run, "call_1"), "of another position")
	require.NotEqual(t, own[:35], tracecontext.TraceparentOf("", "other", "")[:35], "of another run")
}
