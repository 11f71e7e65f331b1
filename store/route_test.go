// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

func TestRoute_AddRunsWithConcurrencyKeys(t *testing.T) {
	t.Parallel()
	by := store.Concurrency{Expression: "input.id", Drop: true}
	for name, c := range map[string]struct {
		route store.Route
		input []byte
		key   string // the result of the expression
		err   error
		want  store.ConcurrencyKey
		fails string
	}{
		"nothing is live":     {store.Route{Concurrency: map[string]store.Concurrency{"a": by}}, []byte(`{}`), "k", nil, store.ConcurrencyKey{Unknown: true}, ""},
		"another agent":       {store.Route{Live: true, Concurrency: map[string]store.Concurrency{"b": by}}, nil, "k", nil, store.ConcurrencyKey{}, ""},
		"a key":               {live(by), []byte(`{}`), "k", nil, store.ConcurrencyKey{Text: "k", Drop: true}, ""},
		"none":                {live(by), []byte(`{}`), "", nil, store.ConcurrencyKey{Drop: true}, ""},
		"the maximum size":    {live(by), []byte(`{}`), strings.Repeat("k", 256), nil, store.ConcurrencyKey{Text: strings.Repeat("k", 256), Drop: true}, ""},
		"too long":            {live(by), []byte(`{}`), strings.Repeat("k", 257), nil, store.ConcurrencyKey{}, `concurrency.key "input.id": the key has 257 bytes; the limit is 256`},
		"no text":             {live(by), []byte(`{}`), "k\x00", nil, store.ConcurrencyKey{}, `concurrency.key "input.id": the key is not valid text`},
		"a large input":       {live(by), nil, "k", nil, store.ConcurrencyKey{}, `concurrency.key "input.id": inputs above 64 KiB have no concurrency key`},
		"no key":              {live(by), []byte(`{}`), "", errors.New("no such key: id"), store.ConcurrencyKey{}, `concurrency.key "input.id": no such key: id`},
		"a very long message": {live(by), []byte(`{}`), "", errors.New(strings.Repeat("x", 1<<20)), store.ConcurrencyKey{}, "… (cut)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.route.Links = []store.Link{{ID: uuid.New(), AgentName: "a"}}
			event := store.Event{Input: c.input}
			require.NoError(t, c.route.AddRuns(&event, false, func(expression string) (string, error) {
				require.Equal(t, by.Expression, expression)
				return c.key, c.err
			}))
			run := event.Runs[0]
			require.Equal(t, c.want, run.Concurrency)
			if c.fails == "" {
				require.Empty(t, run.ErrorCode)
				return
			}
			require.Equal(t, runerror.KeyUnavailable, run.ErrorCode)
			require.Contains(t, run.Error, c.fails)
			require.LessOrEqual(t, len(run.Error), store.MaxError)
		})
	}
}

// live returns a route whose agent a has this setting.
func live(c store.Concurrency) store.Route {
	return store.Route{Live: true, Concurrency: map[string]store.Concurrency{"a": c}}
}

func TestRoute_AddRunsWithRequiredFiles(t *testing.T) {
	t.Parallel()
	route := store.Route{Links: []store.Link{{ID: uuid.New(), AgentName: "a"}, {ID: uuid.New(), AgentName: "b", FilesRequired: true}}}
	for name, c := range map[string]struct {
		connectorRequires bool
		event             store.Event
		want              []runerror.Code
	}{
		"a link requires files":          {event: store.Event{}, want: []runerror.Code{"", runerror.FilesRequired}},
		"the connector requires files":   {connectorRequires: true, want: []runerror.Code{runerror.FilesRequired, runerror.FilesRequired}},
		"the event has files":            {connectorRequires: true, event: store.Event{Files: sized(1)}, want: []runerror.Code{"", ""}},
		"the event repeats a former one": {connectorRequires: true, event: store.Event{Repeat: true}, want: []runerror.Code{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, route.AddRuns(&c.event, c.connectorRequires, nil))
			var codes []runerror.Code
			for i, run := range c.event.Runs {
				codes = append(codes, run.ErrorCode)
				require.Equal(t, route.Links[i].ID, run.LinkID)
				require.Equal(t, route.Links[i].AgentName, run.AgentName)
			}
			require.Equal(t, c.want, codes)
		})
	}
}
