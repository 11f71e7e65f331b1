// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/store"
)

// largeOf returns a delivery of a connector with a large output.
func largeOf(connector store.Key, since time.Time) claimedDelivery {
	blob := uuid.New()
	d := store.Delivery{ID: uuid.New(), ProjectID: connector.ProjectID, ConnectorID: connector.ID}
	return claimedDelivery{ClaimedDelivery: store.ClaimedDelivery{Delivery: d, OutputBlob: &blob}, since: since}
}

func connectorOf(project uuid.UUID) store.Key { return store.Key{ProjectID: project, ID: uuid.New()} }

func ids(all []claimedDelivery) (ids []uuid.UUID) {
	for _, d := range all {
		ids = append(ids, d.Delivery.ID)
	}
	return ids
}

// lanes calls enter and leave.
type lanes struct {
	*largeQueue
	t   *testing.T
	now time.Time
	// sent has the deliveries with slots, by connector.
	sent map[store.Key][]claimedDelivery
}

func newLanes(t *testing.T) *lanes {
	return &lanes{largeQueue: newLargeQueue(), t: t, now: time.Now(), sent: map[store.Key][]claimedDelivery{}}
}

// enters enters n deliveries of a connector and counts the results.
func (l *lanes) enters(connector store.Key, n int) (became map[slotResult]int) {
	became = map[slotResult]int{}
	for range n {
		d := largeOf(connector, l.now)
		e := l.reserveSlot(d)
		if became[e]++; e == slotGranted {
			l.sent[connector] = append(l.sent[connector], d)
		}
	}
	return became
}

// ends ends one delivery of a connector and returns the connectors of the deliveries that start.
func (l *lanes) ends(connector store.Key) (begun []store.Key) {
	d := l.sent[connector][0]
	l.sent[connector] = l.sent[connector][1:]
	next, late := l.releaseSlot(d, l.now)
	require.Empty(l.t, late)
	for _, d := range next {
		key := d.Delivery.Connector()
		l.sent[key] = append(l.sent[key], d)
		begun = append(begun, key)
	}
	return begun
}

// TestLarge_RoundRobin: a project gets its share of the slots, and a waiting delivery starts as
// soon as its project can use a slot.
func TestLarge_RoundRobin(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	var connectors []store.Key
	waiting, has := 0, map[uuid.UUID]int{}
	for range 16 {
		project := uuid.New()
		for range largePart {
			connectors = append(connectors, connectorOf(project))
		}
	}
	for _, connector := range connectors {
		became := l.enters(connector, 2)
		has[connector.ProjectID] += became[slotGranted]
		waiting += became[slotQueued]
		require.Zero(t, became[slotRefused])
	}
	require.EqualValues(t, maxLarge, l.slots.Taken())
	require.Equal(t, largePart, has[connectors[0].ProjectID], "a part")
	require.Positive(t, has[connectors[4*largePart].ProjectID], "some slots are left for other projects")
	for ended := true; ended; {
		ended = false
		for _, connector := range connectors { // a delivery with a slot ends
			if len(l.sent[connector]) > 0 {
				waiting -= len(l.ends(connector))
				ended = true
			}
			for project, of := range l.projects {
				require.LessOrEqual(t, of.sent, largePart, project)
			}
		}
	}
	require.Zero(t, waiting, "each has begun")
	require.Zero(t, l.slots.Taken())
	require.Empty(t, l.projects)
	require.Empty(t, l.turns)
}

// TestLarge_HangingConnectorLeavesSlots: a hanging connector leaves the project's last slot to a
// connector without one, and half of the slots while another connector waits.
func TestLarge_HangingConnectorLeavesSlots(t *testing.T) {
	t.Parallel()
	l, project := newLanes(t), uuid.New()
	slow, quick, third := connectorOf(project), connectorOf(project), connectorOf(project)
	require.Equal(t, map[slotResult]int{slotGranted: largePart - 1, slotQueued: 8, slotRefused: 11}, l.enters(slow, 22))
	require.Equal(t, map[slotResult]int{slotGranted: 1, slotQueued: 4, slotRefused: 1}, l.enters(quick, 6), "it does not wait")
	require.Equal(t, map[slotResult]int{slotQueued: 2, slotRefused: 1}, l.enters(third, 3))
	for _, turn := range [][2]store.Key{{quick, quick}, {quick, third}, {third, quick}, {quick, third}, {third, quick}, {quick, quick}} {
		require.Equal(t, []store.Key{turn[1]}, l.ends(turn[0]), "round-robin, except a connector with more than half of the slots")
	}
	require.Equal(t, 3, len(l.sent[slow]))
	require.Empty(t, l.ends(quick), "one slot is left for a connector without one")
	require.Equal(t, []store.Key{slow}, l.ends(slow), "no other connector waits")
	require.Equal(t, 7, l.projects[project].waits)
}

// TestLarge_FreeSlotGoesToFewer: while another connector of its project waits, no connector uses
// more than half of the slots.
func TestLarge_FreeSlotGoesToFewer(t *testing.T) {
	t.Parallel()
	l, project := newLanes(t), uuid.New()
	slow, quick, other := connectorOf(project), connectorOf(project), connectorOf(uuid.New())
	require.Equal(t, map[slotResult]int{slotGranted: 2}, l.enters(slow, 2))
	require.Equal(t, map[slotResult]int{slotGranted: 1}, l.enters(other, 1))
	for l.slots.Taken() < maxLarge-maxLarge/4 { // other projects use all slots that are not reserved
		require.NoError(t, l.slots.Take(uuid.New(), 1))
	}
	require.Equal(t, map[slotResult]int{slotQueued: 1}, l.enters(slow, 1))
	require.Equal(t, map[slotResult]int{slotQueued: 1}, l.enters(quick, 1))
	require.Equal(t, []store.Key{quick}, l.ends(other))
}

// TestLarge_LimitsWait: a delivery waits for one other, and then returns to the store for a while.
func TestLarge_LimitsWait(t *testing.T) {
	t.Parallel()
	begin, l := time.Now(), newLargeQueue()
	connector, other := connectorOf(uuid.New()), connectorOf(uuid.New())
	sent := largeOf(connector, begin)
	require.Equal(t, slotGranted, l.reserveSlot(sent))
	for range largePart - 2 {
		require.Equal(t, slotGranted, l.reserveSlot(largeOf(connector, begin)))
	}
	require.Equal(t, slotGranted, l.reserveSlot(largeOf(other, begin)))
	first, second, third := largeOf(connector, begin), largeOf(connector, begin), largeOf(connector, begin.Add(time.Second))
	for _, d := range []claimedDelivery{first, second, third} {
		require.Equal(t, slotQueued, l.reserveSlot(d))
	}
	next, late := l.releaseSlot(sent, begin.Add(maxLargeWait))
	require.Equal(t, []uuid.UUID{first.Delivery.ID}, ids(next))
	require.Empty(t, ids(late))
	next, late = l.releaseSlot(largeOf(other, begin), begin.Add(maxLargeWait+1))
	require.Empty(t, ids(next))
	require.Equal(t, []uuid.UUID{second.Delivery.ID}, ids(late), "any connector with a slot")
	require.Equal(t, 1, l.projects[connector.ProjectID].waits)
	require.NotContains(t, l.projects, other.ProjectID)
}

// TestLarge_ReturnedIsDueAgain: returned deliveries are due again at different times, and do not
// count as attempts.
func TestLarge_ReturnedIsDueAgain(t *testing.T) {
	t.Parallel()
	for random, pause := range map[float64]time.Duration{0: 48 * time.Second, 0.5: largeRetryDelay, 1: 72 * time.Second} {
		t.Run(fmt.Sprint(random), func(t *testing.T) {
			s := &Sender{opts: Options{Now: time.Now, Random: func() float64 { return random }}}
			for _, a := range []store.Attempt{s.expiredAttempt(largeOf(connectorOf(uuid.New()), time.Now())), s.returnedAttempt(largeOf(connectorOf(uuid.New()), time.Now()))} {
				require.Equal(t, store.DeliveryRetry, a.Outcome)
				require.True(t, a.Free)
				require.Equal(t, a.Wait.Round(time.Second), a.Wait)
			}
			require.Equal(t, pause, s.expiredAttempt(largeOf(connectorOf(uuid.New()), time.Now())).Wait)
		})
	}
}

// TestLarge_LimitsNextClaim: after too many large deliveries, the next claims ask only for as many
// as this process has capacity for.
func TestLarge_LimitsNextClaim(t *testing.T) {
	t.Parallel()
	l, project := newLanes(t), uuid.New()
	many, few := connectorOf(project), connectorOf(project)
	l.enters(few, 1)
	l.enters(few, 3)
	require.Empty(t, l.freeCapacity(l.now), "there was free capacity")
	l.enters(many, 100)
	require.Equal(t, map[store.Key]int{many: 0}, l.freeCapacity(l.now))
	l.ends(many)
	require.Equal(t, map[store.Key]int{many: 1}, l.freeCapacity(l.now))
	for len(l.sent[many]) > 0 {
		l.ends(many)
	}
	require.Positive(t, l.freeCapacity(l.now.Add(limitedClaimTime))[many])
	l.enters(many, 100)
	require.Equal(t, map[store.Key]int{many: 0}, l.freeCapacity(l.now.Add(limitedClaimTime)))
	require.Empty(t, l.freeCapacity(l.now.Add(limitedClaimTime+1)), "small deliveries may be due while large ones wait")
	require.Empty(t, l.many)
	for range 2 * maxUnderWay {
		l.enters(connectorOf(project), 3)
	}
	require.Len(t, l.many, maxUnderWay, "the number of connectors is limited")
}

// TestLease_CoversAttempt: a claim lasts for its attempt, however long each step takes.
func TestLease_CoversAttempt(t *testing.T) {
	t.Parallel()
	const (
		read  = storeTimeout
		sent  = connector.MaxTimeout
		whole = storeTimeout + 10*time.Second // for requesting and reading a claim
	)
	require.LessOrEqual(t, lease, 170*time.Second, "the deliveries of a killed process wait this long")
	require.LessOrEqual(t, maxLargeWait+read+sent+recordTimeout, lease)
	require.LessOrEqual(t, whole+read+sent+recordTimeout, lease, "an expired wait is noticed when another delivery ends")
	require.GreaterOrEqual(t, maxSendDelay, sent+10*time.Second, "a delivery waits for another attempt")
	hour := 3600
	require.Equal(t, connector.MaxTimeout, connector.Config{TimeoutSeconds: &hour}.Timeout(connector.Outbound))
}

// slowBlobs is a store with slow blobs.
type slowBlobs struct {
	Store
	read func()
}

func (b slowBlobs) OpenBlob(context.Context, store.Key) (io.ReadCloser, error) {
	b.read()
	return io.NopCloser(strings.NewReader(`{}`)), nil
}

// TestSender_SendsNothingTooLate: a late attempt is not made, because another process could have
// the delivery before the attempt is recorded.
func TestSender_SendsNothingTooLate(t *testing.T) {
	t.Parallel()
	var came atomic.Int64
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	t.Cleanup(to.Close)
	where, err := url.Parse(to.URL)
	require.NoError(t, err)
	for after, sent := range map[time.Duration]bool{maxSendDelay: true, maxSendDelay + 1: false} {
		t.Run(after.String(), func(t *testing.T) {
			begin := time.Now()
			now := begin.Add(maxLargeWait)
			s := New(Options{
				Store: slowBlobs{read: func() { now = begin.Add(after) }}, Now: func() time.Time { return now },
				Guard: egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}}),
				WithTimeout: func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
					return context.WithCancel(ctx)
				},
			})
			d := largeOf(connectorOf(uuid.New()), begin)
			d.Delivery.Kind, d.PayloadBlob, d.to = store.DeliverPayload, d.OutputBlob, destination{url: where, headers: http.Header{}}
			came.Store(0)
			a := s.attempt(t.Context(), d)
			require.Equal(t, sent, came.Load() == 1, after)
			require.Equal(t, sent, a.Outcome == store.DeliveryDone, a.Error)
			require.Equal(t, !sent, a.Free && a.Outcome == store.DeliveryRetry)
		})
	}
}
