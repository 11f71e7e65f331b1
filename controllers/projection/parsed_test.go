// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// connectorFiles contain all maps, lists and documents that a file may have.
var connectorFiles = []store.ConnectorFile{
	{Key: "erp", Content: "type: webhook\nmode: outbound\nconfig: {url: 'https://a/b', headers: {X-A: a}, retry: {schedule_seconds: [0, 2]}}\n" +
		"links: [{agent: hello, outbound: {source_connectors: [orders], statuses: [completed]}}]\n"},
	{Key: "orders", Content: "type: webhook\nmode: inbound\nconfig: {context_headers: [X-Request-Id]}\nagents: [hello]\n"},
	{Key: "daily", Content: "type: cron\nconfig: {schedule: '@daily', payload: {a: [1]}}\nagents: [hello]\n"},
}

func TestParsed_CachesFiles(t *testing.T) {
	t.Parallel()
	file, agents := connectorFiles[1], []string{"hello"}
	first, err := projection.ParseFile(file, agents)
	require.NoError(t, err)
	again, err := projection.ParseFile(file, []string{"hello"})
	require.NoError(t, err)
	require.Same(t, first, again)

	_, err = projection.ParseFile(file, []string{"other"})
	require.ErrorContains(t, err, "hello", "the result depends on the agents")
	_, again2 := projection.ParseFile(file, []string{"other"})
	require.Equal(t, err, again2)
	for name, other := range map[string]store.ConnectorFile{
		"key":     {Key: "other", Content: file.Content},
		"content": {Key: file.Key, Content: file.Content + "name: Orders\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := projection.ParseFile(other, agents)
			require.NoError(t, err)
			require.NotSame(t, first, c, name)
		})
	}

	long := store.ConnectorFile{Key: file.Key, Content: file.Content + "#" + strings.Repeat(" ", 8<<10)}
	one, err := projection.ParseFile(long, agents)
	require.NoError(t, err)
	two, err := projection.ParseFile(long, agents)
	require.NoError(t, err)
	require.NotSame(t, one, two, "long ones are not cached")
}

// A mirror is a copy, because the parsed file is shared.
func TestMirrorOf_CopiesFile(t *testing.T) {
	t.Parallel()
	for _, file := range connectorFiles {
		t.Run(file.Key, func(t *testing.T) {
			t.Parallel()
			mirror := func() projection.Mirror {
				c, err := projection.ParseFile(file, []string{"hello"})
				require.NoError(t, err)
				m := projection.MirrorOf("ns", "dev", c)
				return m
			}
			changed, want := mirror(), mirror()
			want.Connector = want.Connector.DeepCopy()
			for i := range want.Links {
				want.Links[i] = want.Links[i].DeepCopy()
			}
			changed.SetActivation(&v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{SecretVersion: 7}}, 3)
			*changed.Connector.Spec.Enabled = false
			if w := changed.Connector.Spec.Webhook; w != nil {
				for name := range w.Headers {
					w.Headers[name] = "changed"
				}
				for i := range w.ContextHeaders {
					w.ContextHeaders[i] = "changed"
				}
				if w.Retry != nil {
					w.Retry.ScheduleSeconds[0] = 99
				}
			}
			if cron := changed.Connector.Spec.Cron; cron != nil {
				copy(cron.Payload.Raw, "changed")
			}
			for _, link := range changed.Links {
				if out := link.Spec.Outbound; out != nil {
					out.SourceConnectors[0], out.Statuses[0] = "changed", "changed"
				}
			}
			require.Equal(t, want, mirror())
		})
	}
}
