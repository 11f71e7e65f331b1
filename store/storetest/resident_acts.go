// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// act is an action of one resident, or of the platform for all of them.
type act struct {
	who  int
	what string
	n    int
}

// chance chooses a value by the number of an act.
func chance[T any](n int, of ...T) T { return of[n%len(of)] }

// residentActs are the acts of a resident.
var residentActs = map[string]func(r *resident, n int){
	"event":    func(r *resident, n int) { r.happens("orders", chance(n, "", "", "a"), nil) },
	"claim":    func(r *resident, n int) { r.takes(chance(n, lease, lease, expired)) },
	"complete": func(r *resident, n int) { r.ends(chance(n, store.RunCompleted, store.RunCompleted, store.RunFailed)) },
	"send":     func(r *resident, _ int) { r.sends() },
	"release": func(r *resident, _ int) {
		if c, ok := first(&r.held); ok {
			r.hears("released "+c.Run.AgentName, r.s.Release(r.ctx, leaseOf(c), 0))
		}
	},
	"cancel": func(r *resident, _ int) {
		if c, ok := first(&r.held); ok {
			r.hears("cancelled "+c.Run.AgentName, r.s.Cancel(r.ctx, c.Run.Key(), store.RunErrorCancelled, "not wanted"))
		}
	},
	"record": func(r *resident, n int) {
		r.records(chance(n, store.DeliveryDone, store.DeliveryFailed, store.DeliveryRetry, store.DeliveryGone, store.DeliveryCancelled))
	},
	"replay":      func(r *resident, n int) { r.replaysOne(chance(n, "orders", "results", "nightly")) },
	"replay many": func(r *resident, n int) { r.replaysMany(chance(n, "orders", "results")) },
	"cancel replay": func(r *resident, _ int) {
		if len(r.replays) > 0 {
			r.hears("replay cancelled", r.s.CancelReplay(r.ctx, r.replays[len(r.replays)-1].Key()))
		}
	},
	"test": func(r *resident, n int) {
		a, err := r.asked(r.connectors[chance(n, "results", "results", "orders")], nil)
		var refused *replay.Refused
		if errors.As(err, &refused) {
			r.say("test: %s", refused.Reason)
			return
		}
		r.hears(fmt.Sprint("test: ", a.Verdict, len(a.RunIDs)), err)
	},
	"refuse": func(r *resident, n int) {
		r.refused(r.connectors[chance(n, "orders", "nightly")].Key(), "invalid_secret", 1)
	},
	"switch": func(r *resident, n int) { r.changes(chance(n, "results", "orders", "nightly")) },
	"resume": func(r *resident, _ int) {
		r.hears("resumed", r.s.ResumeDestination(r.ctx, r.connectors["results"].Key()))
	},
	"tick":   func(r *resident, _ int) { r.ticks("nightly") },
	"unlink": func(r *resident, n int) { r.removes(r.links[chance(n, "orders first", "results first")].Ref) },
	"link":   func(r *resident, n int) { r.link(chance(n, "orders first", "results first", "results second")) },
	"remove": func(r *resident, n int) { r.removes(r.connectors[chance(n, "results", "nightly", "orders")].Ref) },
	"make": func(r *resident, n int) {
		name, mode := chance(n, "results", "nightly", "orders"), chance(n, "outbound", store.TypeCron, "sync")
		r.connect(name, mode)
		r.link(name + " first")
	},
	"deploy":   func(r *resident, n int) { r.version(chance(n, "two", "three")) },
	"move out": func(r *resident, _ int) { r.removes(r.environment.Ref) },
	"move in":  func(r *resident, _ int) { r.place("production"); r.version("again") },
	"read":     func(r *resident, _ int) { r.reads() },
}

// platformActs are the acts of the platform, for all residents at once.
var platformActs = map[string]func(w *world, all []*resident){
	"post": func(w *world, _ []*resident) {
		for w.post() > 0 {
		}
	},
	"take": func(w *world, all []*resident) {
		for _, d := range w.takeDue(store.MaxDeliveryClaim, 1000) {
			for _, r := range all {
				if r.project.ID == d.Delivery.ProjectID {
					r.due = append(r.due, d)
				}
			}
		}
	},
	"hasten": func(w *world, _ []*resident) {
		w.hasten()
		w.set(`UPDATE outbox SET posted_at = 1`)
	},
	"sweep": func(w *world, _ []*resident) { w.sweep(1000) },
	"expire": func(w *world, _ []*resident) {
		w.expire(-time.Hour, 1000)
		_, err := w.s.ExpireDeliveries(w.ctx, -time.Hour, 1000)
		w.NoError(err)
	},
	"replay": func(w *world, all []*resident) {
		taken, err := w.s.TakeReplays(w.ctx, 1000, expired)
		w.NoError(err)
		for _, r := range all {
			before := len(r.said)
			for _, t := range taken {
				if r.project.ID == t.ProjectID {
					r.goesOn(t)
				}
			}
			slices.Sort(r.said[before:]) // rows that are due at once come in any order
		}
	},
	"count": func(w *world, _ []*resident) {
		for w.count(1000) > 0 {
		}
	},
}

// first removes and returns the first element of a list.
func first[T any](list *[]T) (t T, ok bool) {
	if len(*list) == 0 {
		return t, false
	}
	t = (*list)[0]
	*list = (*list)[1:]
	return t, true
}

// takes claims two runs. A lease without duration is lost at once.
func (r *resident) takes(hold time.Duration) {
	for _, c := range r.claim(2, hold) {
		r.say("claimed %s %d", c.Run.AgentName, c.Run.Attempt)
		if hold == lease {
			r.held = append(r.held, c)
		}
	}
}

func (r *resident) ends(status store.RunStatus) {
	if c, ok := first(&r.held); ok {
		r.hears("ended "+c.Run.AgentName, r.complete(store.Completion{Lease: leaseOf(c), Status: status, Output: "done", Error: "as it is"}))
	}
}

// sends makes the oldest held run send with its agent's tool.
func (r *resident) sends() {
	if len(r.held) == 0 {
		return
	}
	c := r.held[0]
	err := r.s.AppendJournal(r.ctx, leaseOf(c), []store.JournalEntry{entry(c.JournalLength+1, store.JournalToolStarted, false)})
	if r.hears("announced", err); err == nil {
		r.held[0].JournalLength++
		sent, err := r.s.Send(r.ctx, by(c, "tell", c.JournalLength+1, `"hello"`))
		r.hears("sent "+sent.Skipped, err)
	}
}

// records records the result of a delivery in progress.
func (r *resident) records(outcome store.DeliveryOutcome) {
	slices.SortFunc(r.due, func(a, b store.ClaimedDelivery) int {
		return cmp.Or(strings.Compare(r.told(a), r.told(b)), strings.Compare(r.event(r.connectorRun(a.Delivery.ID)), r.event(r.connectorRun(b.Delivery.ID))))
	})
	if d, ok := first(&r.due); ok {
		a := attempted(d, outcome)
		a.Down = false // or its connector waits for so many seconds
		r.say("%s: %s", r.told(d), outcome)
		r.record(a)
	}
}

// told returns a description of a delivery in progress.
func (r *resident) told(d store.ClaimedDelivery) string {
	return strings.Join([]string{d.Connector.Name, string(d.Kind), string(d.Run.Status), d.Run.AgentName, d.Run.Output}, " ")
}

// changes disables a connector, or enables it again.
func (r *resident) changes(name string) {
	c := r.connectors[name]
	c.Enabled = !c.Enabled
	c.Ref.Generation++
	r.hears("changed "+name, r.s.PutConnector(r.ctx, c))
	r.connectors[name] = c
}

// act plays the acts of these residents, and ignores the acts of others.
func (w *world) act(residents map[int]*resident, acts []act) {
	all := slices.Collect(maps.Values(residents))
	for _, a := range acts {
		if do, ok := platformActs[a.what]; ok && a.who < 0 {
			do(w, all)
		} else if r, here := residents[a.who]; here {
			r.say("- %s %d", a.what, a.n)
			residentActs[a.what](r, a.n)
		}
	}
}

// play plays acts, and in the end each resident records all that it can read.
func (w *world) play(residents map[int]*resident, acts []act) {
	w.act(residents, append(slices.Clone(acts), act{who: -1, what: "count"}))
	for _, r := range residents {
		r.reads()
	}
}

// theSame returns IDs in one order by first use of a kind and name: rows that differ in IDs only
// are in this order.
func theSame() func(kind, name string) uuid.UUID {
	ids := map[string]uuid.UUID{}
	return func(kind, name string) uuid.UUID {
		id, known := ids[kind+name]
		if !known {
			id = uuid.New()
			binary.BigEndian.PutUint32(id[:], uint32(len(ids))) //nolint:gosec // there are few
			ids[kind+name] = id
		}
		return id
	}
}
