// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/store"
)

var chosenPromises = []promise{
	{"an object may have the ID of any other thing", func(w *world) {
		for _, kind := range slices.Sorted(maps.Keys(late)) {
			w.Equal(w.playCollisions(kind, true), w.playCollisions(kind, false), kind)
		}
	}},
	{"two projects with the same chosen IDs are independent", func(w *world) {
		histories := rapid.SliceOfN(rapid.Custom(drawAct), 120, 160)
		for seed := range 8 {
			acts, choose := histories.Example(seed), theSame()
			both := map[int]*resident{0: w.settles(choose), 1: w.settles(choose)}
			w.playAndRead(both, acts)
			both[0].deletePending()
			both[1].deletePending()
			who := seed % 2
			alone := w.settles(theSame())
			w.playAndRead(map[int]*resident{who: alone}, acts)
			alone.deletePending()
			w.Equal(alone.said, both[who].said, "history %d of resident %d: %+v", seed, who, acts)
		}
	}},
}

// late are objects that are created late, by kind, with their actions.
var late = map[string]struct {
	come, leave func(r *resident, name string)
}{
	store.KindEnvironment: {
		func(r *resident, name string) {
			r.createEnvironment(name)
			home := r.environment
			r.environment = r.places[name]
			r.version("of-" + name)
			r.environment = home
		},
		func(r *resident, name string) { r.removes(r.places[name].Ref) },
	},
	store.KindDeployment: {
		func(r *resident, name string) { r.version(name) },
		func(r *resident, name string) { r.removes(r.versions[name].Ref) },
	},
	store.KindConnector: {
		func(r *resident, name string) {
			r.connect(name, "sync")
			r.createLink(name + " first")
			r.happens(name, "a", nil)
			r.refused(r.connectors[name].Key(), "invalid_secret", 1)
			r.replaysMany(name)
		},
		func(r *resident, name string) { r.changes(name); r.replaysOne(name); r.removes(r.connectors[name].Ref) },
	},
	"outbound connector": {
		func(r *resident, name string) {
			r.connect(name, "outbound")
			r.createLink(name + " first")
		},
		func(r *resident, name string) {
			r.recordResult("resumed", r.s.ResumeDestination(r.ctx, r.connectors[name].Key()))
			r.changes(name)
			r.replaysOne(name)
			r.removes(r.connectors[name].Ref)
		},
	},
	"cron connector": {
		func(r *resident, name string) {
			r.connect(name, store.TypeCron)
			r.createLink(name + " first")
			r.makeTickDue(name)
		},
		func(r *resident, name string) { r.changes(name); r.removes(r.connectors[name].Ref) },
	},
	store.KindConnectorLink: {
		func(r *resident, name string) {
			r.createLink("orders " + name)
			r.happens("orders", "", nil)
		},
		func(r *resident, name string) { r.removes(r.links["orders "+name].Ref) },
	},
	"replay": {
		func(r *resident, _ string) {
			residentActs["cancel replay"](r, 0)
			r.replaysMany("orders")
		},
		func(r *resident, _ string) { residentActs["cancel replay"](r, 0) },
	},
}

// before and after are the acts before the late objects come, and afterwards.
var (
	before = parseActs("event 0; event 2; event 0; event 0; claim 0; complete 0; link 2; send 0; claim 2; sweep; post; take; record 0; replay many 0; refuse 0; tick 0; claim 0; complete 2; post")
	after  = parseActs("event 0; claim 0; claim 0; complete 0; complete 2; send 0; complete 0; complete 0; post; take; record 0; record 1; record 2; record 3; record 4; record 1; " +
		"hasten; post; take; record 0; record 2; replay; replay 0; replay 1; resume 0; tick 0; release 0; claim 2; sweep; claim 0; cancel 0; complete 0; post; take; record 1")
	end = parseActs("post; take; hasten; post; take; record 1; record 0; complete 0; expire; post; count")
)

// parseActs parses acts from a text: acts of the platform if no number names the resident.
func parseActs(text string) (out []act) {
	for _, one := range strings.Split(text, "; ") {
		a := act{who: -1, what: one}
		if at := strings.LastIndexByte(one, ' '); at >= 0 {
			a = act{what: one[:at], n: int(one[at+1] - '0')}
		}
		out = append(out, a)
	}
	return out
}

// playCollisions plays the life of two residents. In one of them an object of the kind is created late with
// the ID of each other thing, or with a new ID if fresh is set. It returns what both observe.
func (w *world) playCollisions(kind string, fresh bool) (said []string) {
	chosen, base := map[string]uuid.UUID{}, theSame()
	r := w.settles(func(kind, name string) uuid.UUID {
		if id, late := chosen[name]; late {
			return id
		}
		return base(kind, name)
	})
	other := w.settles(func(string, string) uuid.UUID { return uuid.New() })
	both := map[int]*resident{0: r, 1: other}
	w.playActs(both, assignActs(1, before))
	w.playActs(both, before)
	var names []string
	for i, of := range w.otherIDs(r, other, kind) {
		name := fmt.Sprintf("late-%02d-%s", i, of.kind)
		names = append(names, name)
		if fresh {
			of.id = newUUIDv7()
		}
		chosen[name], chosen["orders "+name] = of.id, of.id
		if kind == "replay" {
			chosen[fmt.Sprint(len(r.replays)+i)] = of.id
		}
	}
	w.GreaterOrEqual(len(names), 14)
	for _, name := range names {
		late[kind].come(r, name)
	}
	w.playActs(both, after)
	w.playActs(both, assignActs(1, after))
	for _, name := range names {
		late[kind].leave(r, name)
	}
	w.playAndRead(both, end)
	r.deletePending()
	other.deletePending()
	return slices.Concat(r.said, other.said)
}

// assignActs assigns acts to a resident.
func assignActs(who int, acts []act) []act {
	acts = slices.Clone(acts)
	for i := range acts {
		if acts[i].who >= 0 {
			acts[i].who = who
		}
	}
	return acts
}

// another is an ID with its origin.
type another struct {
	id   uuid.UUID
	kind string
}

// otherIDs returns IDs that a user may choose for a kind: two IDs of each kind that no object of the
// resident has claimed, and one of each kind of the other resident.
func (w *world) otherIDs(r, other *resident, but string) (ids []another) {
	most := map[string]int{"own": 2, "other": 1}
	for whose, of := range map[string]*resident{"own": r, "other": other} {
		seen, kinds := map[string]int{}, of.kindsOfIDs()
		for _, id := range slices.SortedFunc(maps.Keys(kinds), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
			kind := whose + "-" + strings.ReplaceAll(kinds[id][0], " ", "-")
			_, err := w.s.Holder(w.ctx, r.key(id))
			if seen[kind]++; err != nil && seen[kind] <= most[whose] && kind != "own-"+but {
				ids = append(ids, another{id, kind})
			}
		}
	}
	slices.SortStableFunc(ids, func(a, b another) int { return strings.Compare(a.kind, b.kind) })
	return ids
}

// drawAct draws an act.
func drawAct(rt *rapid.T) act {
	a := act{who: rapid.IntRange(-1, 1).Draw(rt, "who"), n: rapid.IntRange(0, 29).Draw(rt, "n")}
	names := sortedNames(residentActs)
	if a.who < 0 {
		names = sortedNames(platformActs)
	}
	a.what = rapid.SampledFrom(slices.Clone(names)).Draw(rt, "what")
	return a
}
