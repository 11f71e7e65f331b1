// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

var unknownKeyPromises = []promise{
	{"the first claim evaluates unknown keys", func(w *world) {
		r := w.unknown(`{"k":"a"}`, `{"k":1}`, `{"k":"a"}`, `{"k":1}`, `{"k":true}`, `{"k":""}`, `{"k":""}`)
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.k"}}, "first")
		claimed := w.underWay(r[0], r[1], r[4], r[5], r[6])
		more := w.contenders("a", "1")
		w.completeTogether(claimed...)
		w.completeTogether(w.underWay(r[2], r[3])...)
		w.completeTogether(w.underWay(more...)...)
		w.noSlots()
	}},
	{"a key evaluated at the claim may be taken or empty", func(w *world) {
		long := fmt.Sprintf(`{"k":%q}`, strings.Repeat("k", store.MaxConcurrencyKey+1))
		r := w.unknown(`{"k":"a"}`, `{"k":"a"}`, `{}`, `{"k":[]}`, long, `no JSON`)
		blob := w.singleEvent()
		id := uuid.New()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(id), strings.NewReader(`{"k":"b"}`))))
		blob.Input, blob.InputBlob, blob.Runs[0].Concurrency.Unknown = nil, &id, true
		w.accept(&blob)
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.k", Drop: true}}, "first")
		w.underWay(r[0])
		w.Equal(runerror.ConcurrencyDropped, w.run(r[1]).ErrorCode)
		for i, message := range []string{"no such key: k", "list", "257 bytes", "not JSON", "64 KiB"} {
			run := w.run(append(r, blob.Runs[0].ID)[i+2])
			w.Equal(store.RunFailed, run.Status)
			w.Equal(runerror.KeyUnavailable, run.ErrorCode)
			w.Contains(run.Error, message)
			w.Contains(run.Error, `concurrency.key "input.k"`)
		}
	}},
	{"unknown keys of an agent without expression are empty", func(w *world) {
		r := w.unknown(`{"k":"a"}`, `{"k":"a"}`)
		w.deploy("one", "first")
		c := w.underWay(r...)
		w.NoError(w.s.Release(w.ctx, leaseOf(c[0]), 0))
		w.deployKeyed("two", keyedBy{"first": {Expression: "input.k"}}, "first")
		w.completeTogether(w.underWay(c[0].Run.ID)...)
	}},
	{"more runs with unknown keys than one claim reads", func(w *world) {
		var events []store.Event
		for range 100 {
			e := w.contender("")
			e.Runs[0].Concurrency.Unknown, e.Input = true, []byte(`{"k":"a"}`)
			events = append(events, e)
		}
		w.acceptAll(events)
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.k"}}, "first")
		w.Len(w.claim(100, lease), 1)
	}},
	{"a route has the concurrency settings of its agents, and its version follows", func(w *world) {
		route := func() store.Route { return w.readRoute(w.connector.Key()) }
		before := route()
		w.False(before.Live)
		changes := func(does bool) {
			after := route()
			w.True(after.Live)
			w.Equal(does, after.Connector.Version != before.Connector.Version)
			before = after
		}
		w.deploy("one", "first", "second")
		changes(true)
		w.Empty(before.Concurrency)
		w.deploy("two", "first")
		changes(false)
		w.deployKeyed("three", keyedBy{"second": {Expression: "input.k", Drop: true}, "other": {Expression: "input.k"}}, "first", "second", "other")
		changes(true)
		w.Equal(map[string]store.Concurrency{"second": {Expression: "input.k", Drop: true}}, before.Concurrency, "linked agents only")
		w.deployKeyed("four", keyedBy{"second": {Expression: "input.k", Drop: true}, "other": {Expression: "input.k"}}, "second", "other")
		changes(false)
		w.deployKeyed("five", keyedBy{"second": {Expression: "input.k"}}, "second")
		changes(true)
		w.deploy("six", "second")
		changes(true)
		w.Empty(before.Concurrency)
	}},
}

// unknown accepts single events without a live deployment, so their keys are not evaluated.
func (w *world) unknown(inputs ...string) (runs []uuid.UUID) {
	for _, input := range inputs {
		e := w.singleEvent()
		e.Input, e.Runs[0].Concurrency.Unknown = []byte(input), true
		w.accept(&e)
		runs = append(runs, e.Runs[0].ID)
	}
	return runs
}
