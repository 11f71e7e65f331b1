// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func TestConcurrency_KeyOf(t *testing.T) {
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
			got, err := c.route.KeyOf("a", c.input, func(expression string) (string, error) {
				require.Equal(t, by.Expression, expression)
				return c.key, c.err
			})
			require.Equal(t, c.want, got)
			if c.fails == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.fails)
			require.LessOrEqual(t, len(err.Error()), store.MaxError)
		})
	}
}

// live returns a route whose agent a has this setting.
func live(c store.Concurrency) store.Route {
	return store.Route{Live: true, Concurrency: map[string]store.Concurrency{"a": c}}
}
