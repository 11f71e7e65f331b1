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

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// act is an action of one resident, or of the platform for all of them.
type act struct {
	who  int
	what string
	n    int
}

// chooseBy chooses a value by the number of an act.
func chooseBy[T any](n int, of ...T) T { return of[n%len(of)] }

// residentActs are the acts of a resident.
var residentActs = map[string]func(r *resident, n int){
	"event": func(r *resident, n int) { r.happens("orders", chooseBy(n, "", "", "a"), nil) },
	"claim": func(r *resident, n int) { r.claimTwo(chooseBy(n, lease, lease, expired)) },
	"complete": func(r *resident, n int) {
		r.completeRun(chooseBy(n, store.RunCompleted, store.RunCompleted, store.RunFailed))
	},
	"send": func(r *resident, _ int) { r.sendPayload() },
	"release": func(r *resident, _ int) {
		if c, ok := popFirst(&r.held); ok {
			r.recordResult("released "+c.Run.AgentName, r.s.Release(r.ctx, leaseOf(c), 0))
		}
	},
	"cancel": func(r *resident, _ int) {
		if c, ok := popFirst(&r.held); ok {
			r.recordResult("cancelled "+c.Run.AgentName, r.s.Cancel(r.ctx, c.Run.Key(), runerror.Cancelled, "not wanted"))
		}
	},
	"record": func(r *resident, n int) {
		r.records(chooseBy(n, store.DeliveryDone, store.DeliveryFailed, store.DeliveryRetry, store.DeliveryGone, store.DeliveryCancelled))
	},
	"replay":      func(r *resident, n int) { r.replaysOne(chooseBy(n, "orders", "results", "nightly")) },
	"replay many": func(r *resident, n int) { r.replaysMany(chooseBy(n, "orders", "results")) },
	"cancel replay": func(r *resident, _ int) {
		if len(r.replays) > 0 {
			r.recordResult("replay cancelled", r.s.CancelReplay(r.ctx, r.replays[len(r.replays)-1].Key()))
		}
	},
	"test": func(r *resident, n int) {
		a, err := r.requestTest(r.connectors[chooseBy(n, "results", "results", "orders")], nil)
		var refused *replay.Refused
		if errors.As(err, &refused) {
			r.recordLine("test: %s", refused.Reason)
			return
		}
		r.recordResult(fmt.Sprint("test: ", a.Verdict, len(a.RunIDs)), err)
	},
	"refuse": func(r *resident, n int) {
		r.refused(r.connectors[chooseBy(n, "orders", "nightly")].Key(), "invalid_secret", 1)
	},
	"switch": func(r *resident, n int) { r.changes(chooseBy(n, "results", "orders", "nightly")) },
	"resume": func(r *resident, _ int) {
		r.recordResult("resumed", r.s.ResumeDestination(r.ctx, r.connectors["results"].Key()))
	},
	"tick":   func(r *resident, _ int) { r.makeTickDue("nightly") },
	"unlink": func(r *resident, n int) { r.removes(r.links[chooseBy(n, "orders first", "results first")].Ref) },
	"link":   func(r *resident, n int) { r.createLink(chooseBy(n, "orders first", "results first", "results second")) },
	"remove": func(r *resident, n int) { r.removes(r.connectors[chooseBy(n, "results", "nightly", "orders")].Ref) },
	"make": func(r *resident, n int) {
		name, mode := chooseBy(n, "results", "nightly", "orders"), chooseBy(n, "outbound", store.TypeCron, "sync")
		r.connect(name, mode)
		r.createLink(name + " first")
	},
	"deploy":   func(r *resident, n int) { r.version(chooseBy(n, "two", "three")) },
	"move out": func(r *resident, _ int) { r.removes(r.environment.Ref) },
	"move in":  func(r *resident, _ int) { r.createEnvironment("production"); r.version("again") },
	"read":     func(r *resident, _ int) { r.recordReads() },
}

// platformActs are the acts of the platform, for all residents at once.
var platformActs = map[string]func(w *world, all []*resident){
	"post": func(w *world, _ []*resident) {
		for w.postDeliveries() > 0 {
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
		w.makeAllDue()
		w.updateRows(`UPDATE outbox SET posted_at = 1`)
	},
	"sweep": func(w *world, _ []*resident) { w.sweep(1000) },
	"expire": func(w *world, _ []*resident) {
		w.expireRuns(-time.Hour, 1000)
		w.NoError(errorOf(w.s.ExpireDeliveries(w.ctx, -time.Hour, 1000)))
	},
	"replay": func(w *world, all []*resident) {
		taken, err := w.s.TakeReplays(w.ctx, 1000, expired)
		w.NoError(err)
		for _, r := range all {
			before := len(r.said)
			for _, t := range taken {
				if r.project.ID == t.ProjectID {
					r.advanceReplay(t)
				}
			}
			slices.Sort(r.said[before:]) // rows that are due at once come in any order
		}
	},
	"count": func(w *world, _ []*resident) {
		for w.countStored(1000) > 0 {
		}
	},
}

// popFirst removes and returns the first element of a list.
func popFirst[T any](list *[]T) (t T, ok bool) {
	if len(*list) == 0 {
		return t, false
	}
	t = (*list)[0]
	*list = (*list)[1:]
	return t, true
}

// claimTwo claims two runs. A lease without duration is lost at once.
func (r *resident) claimTwo(hold time.Duration) {
	for _, c := range r.claim(2, hold) {
		r.recordLine("claimed %s %d", c.Run.AgentName, c.Run.Attempt)
		if hold == lease {
			r.held = append(r.held, c)
		}
	}
}

func (r *resident) completeRun(status store.RunStatus) {
	if c, ok := popFirst(&r.held); ok {
		r.recordResult("ended "+c.Run.AgentName, r.complete(store.Completion{Lease: leaseOf(c), Status: status, Output: "done", Error: "as it is"}))
	}
}

// sendPayload makes the oldest held run send with its agent's tool.
func (r *resident) sendPayload() {
	if len(r.held) == 0 {
		return
	}
	c := r.held[0]
	err := r.s.AppendJournal(r.ctx, leaseOf(c), []store.JournalEntry{newEntry(c.JournalLength+1, store.JournalToolStarted, false)})
	if r.recordResult("announced", err); err == nil {
		r.held[0].JournalLength++
		sent, err := r.s.Send(r.ctx, payloadOf(c, "tell", c.JournalLength+1, `"hello"`))
		r.recordResult("sent "+sent.Skipped, err)
	}
}

// records records the result of a delivery in progress.
func (r *resident) records(outcome store.DeliveryOutcome) {
	slices.SortFunc(r.due, func(a, b store.ClaimedDelivery) int {
		return cmp.Or(strings.Compare(r.describeDelivery(a), r.describeDelivery(b)), strings.Compare(r.describeEvent(r.connectorRun(a.Delivery.ID)), r.describeEvent(r.connectorRun(b.Delivery.ID))))
	})
	if d, ok := popFirst(&r.due); ok {
		a := attempted(d, outcome)
		a.Down = false // or its connector waits for so many seconds
		r.recordLine("%s: %s", r.describeDelivery(d), outcome)
		r.recordAttempts(a)
	}
}

// describeDelivery returns a description of a delivery in progress.
func (r *resident) describeDelivery(d store.ClaimedDelivery) string {
	return strings.Join([]string{d.Connector.Name, string(d.Kind), string(d.Run.Status), d.Run.AgentName, d.Run.Output}, " ")
}

// changes disables a connector, or enables it again.
func (r *resident) changes(name string) {
	c := r.connectors[name]
	c.Enabled = !c.Enabled
	c.Ref.Generation++
	r.recordResult("changed "+name, r.s.PutConnector(r.ctx, c))
	r.connectors[name] = c
}

// playActs plays the acts of these residents, and ignores the acts of others.
func (w *world) playActs(residents map[int]*resident, acts []act) {
	all := slices.Collect(maps.Values(residents))
	for _, a := range acts {
		if do, ok := platformActs[a.what]; ok && a.who < 0 {
			do(w, all)
		} else if r, here := residents[a.who]; here {
			r.recordLine("- %s %d", a.what, a.n)
			residentActs[a.what](r, a.n)
		}
	}
}

// playAndRead plays acts, and in the end each resident records all that it can read.
func (w *world) playAndRead(residents map[int]*resident, acts []act) {
	w.playActs(residents, append(slices.Clone(acts), act{who: -1, what: "count"}))
	for _, r := range residents {
		r.recordReads()
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
