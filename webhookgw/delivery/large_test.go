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

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/store"
)

// largeOf is a delivery to a connector whose output is large.
func largeOf(connector store.Key, since time.Time) claimed {
	blob := uuid.New()
	d := store.Delivery{ID: uuid.New(), ProjectID: connector.ProjectID, ConnectorID: connector.ID}
	return claimed{ClaimedDelivery: store.ClaimedDelivery{Delivery: d, OutputBlob: &blob}, since: since}
}

func connectorOf(project uuid.UUID) store.Key { return store.Key{ProjectID: project, ID: uuid.New()} }

func ids(all []claimed) (ids []uuid.UUID) {
	for _, d := range all {
		ids = append(ids, d.Delivery.ID)
	}
	return ids
}

// lanes enters deliveries and ends them.
type lanes struct {
	*larges
	t   *testing.T
	now time.Time
	// sent are those that have places, each by its connector.
	sent map[store.Key][]claimed
}

func newLanes(t *testing.T) *lanes {
	return &lanes{larges: newLarges(), t: t, now: time.Now(), sent: map[store.Key][]claimed{}}
}

// enters lets so many of a connector enter, and says what became of each.
func (l *lanes) enters(connector store.Key, n int) (became map[entry]int) {
	became = map[entry]int{}
	for range n {
		d := largeOf(connector, l.now)
		e := l.enter(d)
		if became[e]++; e == begins {
			l.sent[connector] = append(l.sent[connector], d)
		}
	}
	return became
}

// ends lets one of a connector's end, and returns the connectors whose deliveries begin.
func (l *lanes) ends(connector store.Key) (begun []store.Key) {
	d := l.sent[connector][0]
	l.sent[connector] = l.sent[connector][1:]
	next, late := l.leave(d, l.now)
	require.Empty(l.t, late)
	for _, d := range next {
		key := d.Delivery.Connector()
		l.sent[key] = append(l.sent[key], d)
		begun = append(begun, key)
	}
	return begun
}

// TestLargeOnesHavePlacesInTurns: a project has a part, and one that waits begins as soon as
// there is a place that it may have.
func TestLargeOnesHavePlacesInTurns(t *testing.T) {
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
		has[connector.ProjectID] += became[begins]
		waiting += became[waits]
		require.Zero(t, became[beyond])
	}
	require.EqualValues(t, maxLarge, l.places.Taken())
	require.Equal(t, largePart, has[connectors[0].ProjectID], "a part")
	require.Positive(t, has[connectors[4*largePart].ProjectID], "some are left for the next")
	for ended := true; ended; {
		ended = false
		for _, connector := range connectors { // one that has a place ends
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
	require.Zero(t, l.places.Taken())
	require.Empty(t, l.projects)
	require.Empty(t, l.turns)
}

// TestAConnectorThatHangsLeavesPlacesToOthers of its project: the last one to one that has none,
// and half of them while another one waits.
func TestAConnectorThatHangsLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	l, project := newLanes(t), uuid.New()
	slow, quick, third := connectorOf(project), connectorOf(project), connectorOf(project)
	require.Equal(t, map[entry]int{begins: largePart - 1, waits: 8, beyond: 11}, l.enters(slow, 22))
	require.Equal(t, map[entry]int{begins: 1, waits: 4, beyond: 1}, l.enters(quick, 6), "it waits for nobody")
	require.Equal(t, map[entry]int{waits: 2, beyond: 1}, l.enters(third, 3))
	for _, turn := range [][2]store.Key{{quick, quick}, {quick, third}, {third, quick}, {quick, third}, {third, quick}, {quick, quick}} {
		require.Equal(t, []store.Key{turn[1]}, l.ends(turn[0]), "connectors take turns, but for one that has more than half")
	}
	require.Equal(t, 3, len(l.sent[slow]))
	require.Empty(t, l.ends(quick), "one is left to who has none")
	require.Equal(t, []store.Key{slow}, l.ends(slow), "nobody else waits")
	require.Equal(t, 7, l.projects[project].waits)
}

// TestAPlaceThatIsFreeGoesToWhoHasFewer: while another connector of its project waits, none has
// more than half of the places.
func TestAPlaceThatIsFreeGoesToWhoHasFewer(t *testing.T) {
	t.Parallel()
	l, project := newLanes(t), uuid.New()
	slow, quick, other := connectorOf(project), connectorOf(project), connectorOf(uuid.New())
	require.Equal(t, map[entry]int{begins: 2}, l.enters(slow, 2))
	require.Equal(t, map[entry]int{begins: 1}, l.enters(other, 1))
	for l.places.Taken() < maxLarge-maxLarge/4 { // other projects have what is not kept for the next
		require.NoError(t, l.places.Take(uuid.New(), 1))
	}
	require.Equal(t, map[entry]int{waits: 1}, l.enters(slow, 1))
	require.Equal(t, map[entry]int{waits: 1}, l.enters(quick, 1))
	require.Equal(t, []store.Key{quick}, l.ends(other))
}

// TestALargeOneWaitsSoLong: for one other, and is then given back for a while.
func TestALargeOneWaitsSoLong(t *testing.T) {
	t.Parallel()
	begin, l := time.Now(), newLarges()
	connector, other := connectorOf(uuid.New()), connectorOf(uuid.New())
	sent := largeOf(connector, begin)
	require.Equal(t, begins, l.enter(sent))
	for range largePart - 2 {
		require.Equal(t, begins, l.enter(largeOf(connector, begin)))
	}
	require.Equal(t, begins, l.enter(largeOf(other, begin)))
	first, second, third := largeOf(connector, begin), largeOf(connector, begin), largeOf(connector, begin.Add(time.Second))
	for _, d := range []claimed{first, second, third} {
		require.Equal(t, waits, l.enter(d))
	}
	next, late := l.leave(sent, begin.Add(largeWait))
	require.Equal(t, []uuid.UUID{first.Delivery.ID}, ids(next))
	require.Empty(t, ids(late))
	next, late = l.leave(largeOf(other, begin), begin.Add(largeWait+1))
	require.Empty(t, ids(next))
	require.Equal(t, []uuid.UUID{second.Delivery.ID}, ids(late), "whoever has a place")
	require.Equal(t, 1, l.projects[connector.ProjectID].waits)
	require.NotContains(t, l.projects, other.ProjectID)
}

// TestWhatIsGivenBackIsDueAgain, not all at one moment, and does not count as an attempt.
func TestWhatIsGivenBackIsDueAgain(t *testing.T) {
	t.Parallel()
	for random, pause := range map[float64]time.Duration{0: 48 * time.Second, 0.5: largePause, 1: 72 * time.Second} {
		t.Run(fmt.Sprint(random), func(t *testing.T) {
			s := &Sender{opts: Options{Now: time.Now, Random: func() float64 { return random }}}
			for _, a := range []store.Attempt{s.late(largeOf(connectorOf(uuid.New()), time.Now())), s.givenBack(largeOf(connectorOf(uuid.New()), time.Now()))} {
				require.Equal(t, store.DeliveryRetry, a.Outcome)
				require.True(t, a.Free)
				require.Equal(t, a.Wait.Round(time.Second), a.Wait)
			}
			require.Equal(t, pause, s.late(largeOf(connectorOf(uuid.New()), time.Now())).Wait)
		})
	}
}

// TestWhoHadTooManyIsAskedForFew: for as many as there is room for here, for a while.
func TestWhoHadTooManyIsAskedForFew(t *testing.T) {
	t.Parallel()
	l, project := newLanes(t), uuid.New()
	many, few := connectorOf(project), connectorOf(project)
	l.enters(few, 1)
	l.enters(few, 3)
	require.Empty(t, l.most(l.now), "there was room")
	l.enters(many, 100)
	require.Equal(t, map[store.Key]int{many: 0}, l.most(l.now))
	l.ends(many)
	require.Equal(t, map[store.Key]int{many: 1}, l.most(l.now))
	for len(l.sent[many]) > 0 {
		l.ends(many)
	}
	require.Positive(t, l.most(l.now.Add(manyFor))[many])
	l.enters(many, 100)
	require.Equal(t, map[store.Key]int{many: 0}, l.most(l.now.Add(manyFor)))
	require.Empty(t, l.most(l.now.Add(manyFor+1)), "small ones may be due, although large ones wait")
	require.Empty(t, l.many)
	for range 2 * maxUnderWay {
		l.enters(connectorOf(project), 3)
	}
	require.Len(t, l.many, maxUnderWay, "of so many at most")
}

// TestAClaimLastsForItsAttempt, however long each part of it takes.
func TestAClaimLastsForItsAttempt(t *testing.T) {
	t.Parallel()
	const (
		read  = storeTimeout
		sent  = outbound.MaxTimeout
		whole = storeTimeout + 10*time.Second // for which a claim is asked and read
	)
	require.LessOrEqual(t, lease, 170*time.Second, "so long nothing is sent of what a killed process held")
	require.LessOrEqual(t, largeWait+read+sent+recordWithin, lease)
	require.LessOrEqual(t, whole+read+sent+recordWithin, lease, "what waits for too long is noticed by the end of another")
	require.GreaterOrEqual(t, sendWithin, sent+10*time.Second, "another attempt is waited for")
	require.Equal(t, outbound.MaxTimeout, outbound.Config{TimeoutSeconds: 3600}.Timeout())
}

// slowBlobs is a store that takes a while for each blob.
type slowBlobs struct {
	Store
	read func()
}

func (b slowBlobs) OpenBlob(context.Context, store.Key) (io.ReadCloser, error) {
	b.read()
	return io.NopCloser(strings.NewReader(`{}`)), nil
}

// TestNothingIsSentTooLate: another one may have it by the time that it is recorded.
func TestNothingIsSentTooLate(t *testing.T) {
	t.Parallel()
	var came atomic.Int64
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	t.Cleanup(to.Close)
	where, err := url.Parse(to.URL)
	require.NoError(t, err)
	for after, sent := range map[time.Duration]bool{sendWithin: true, sendWithin + 1: false} {
		t.Run(after.String(), func(t *testing.T) {
			begin := time.Now()
			now := begin.Add(largeWait)
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
