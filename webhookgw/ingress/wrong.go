// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/agentplatform/agentplatform/store"
)

// wrongs bounds, a connector, what requests cost of which the secret or the signature is
// not right, or not judged yet. Those that are right cost nothing of it, so that nobody
// who guesses keeps the owner out; only of bodies that must be read before they are judged
// strangers may take up what there is.
type wrongs struct {
	now        func() time.Time
	connectors *lru.Cache[store.Key, *wrong]

	mutex sync.Mutex
	// reading is what comes in at the moment and is not judged yet, by connector and by
	// project.
	reading   map[store.Key]int64
	byProject map[uuid.UUID]int64
	allNow    int64
	// all is what was wrong of late for all connectors.
	all *rate.Limiter
}

// wrong is what was wrong of late for one connector, or for a project.
type wrong struct{ answers, bytes *rate.Limiter }

func newWrongs(now func() time.Time) *wrongs {
	connectors, err := lru.New[store.Key, *wrong](maxWrong)
	if err != nil {
		panic("making a cache of connectors: " + err.Error()) // refuses sizes below 1 alone
	}
	return &wrongs{
		now: now, connectors: connectors, reading: map[store.Key]int64{}, byProject: map[uuid.UUID]int64{},
		all: rate.NewLimiter(wrongBytesOfAll, wrongBurstOfAll),
	}
}

// of is that of a connector which is there: strangers' ids are not remembered.
func (w *wrongs) of(connector store.Key) *wrong {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found, ok := w.connectors.Get(connector)
	if !ok {
		found = &wrong{rate.NewLimiter(wrongAnswers, wrongAnswersBurst), rate.NewLimiter(wrongBytes, wrongBytesBurst)}
		if connector.ID == uuid.Nil { // a project
			found.bytes = rate.NewLimiter(wrongBytesOfProject, wrongBurstOfProject)
		}
		w.connectors.Add(connector, found)
	}
	return found
}

// answered counts a request that is wrong, and says whether it may be told so.
func (w *wrongs) answered(connector store.Key) bool {
	return w.of(connector).answers.AllowN(w.now(), 1)
}

// budgets are those that the bytes of a connector's wrong bodies count in.
func (w *wrongs) budgets(connector store.Key) []*rate.Limiter {
	return []*rate.Limiter{w.of(connector).bytes, w.of(store.Key{ProjectID: connector.ProjectID}).bytes, w.all}
}

// mayRead says whether large bodies of a connector are read: until its own wrong ones were too
// many of late, those of its project, or those of all; the last keep out nobody whose project
// has had less than the largest body of them.
func (w *wrongs) mayRead(connector store.Key) bool {
	now, ofProject := w.now(), w.of(store.Key{ProjectID: connector.ProjectID}).bytes
	for _, bytes := range w.budgets(connector) {
		if bytes.TokensAt(now) < 0 && (bytes != w.all || ofProject.TokensAt(now) < wrongBurstOfProject-MaxBody) {
			return false
		}
	}
	return true
}

// begin lets a body come in of which the signature is judged at its end; large says that it
// may be larger than store.MaxInlineInput. Where it may, the caller ends it.
func (w *wrongs) begin(connector store.Key, size int64, large bool) bool {
	if large && !w.mayRead(connector) {
		return false
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	own, ofProject := w.reading[connector], w.byProject[connector.ProjectID]
	project := min(maxUnverified, (maxAllUnverified-w.allNow+ofProject)/2) // half of what the others leave
	if ofProject+size > project || own+size > (project-ofProject+own)/2 || large && w.allNow+size > maxAllUnverified-keptForSmall {
		return false
	}
	w.reading[connector] += size
	w.byProject[connector.ProjectID] += size
	w.allNow += size
	return true
}

// end ends what began with the same size; read is how many bytes came in whose signature
// was not right. Those of large bodies count, if need be in advance; of small ones, which
// come in at any time, no more than there is, so that they keep no large one out for long.
// Nor do those of many projects, of which each may have some: all are never more than
// maxWrongDebt behind.
func (w *wrongs) end(connector store.Key, size, read int64, large bool) {
	w.mutex.Lock()
	if w.reading[connector] -= size; w.reading[connector] <= 0 {
		delete(w.reading, connector)
	}
	if w.byProject[connector.ProjectID] -= size; w.byProject[connector.ProjectID] <= 0 {
		delete(w.byProject, connector.ProjectID)
	}
	w.allNow -= size
	w.mutex.Unlock()
	now := w.now()
	for _, bytes := range w.budgets(connector) {
		n := min(int(read), bytes.Burst())
		if !large {
			n = min(n, int(bytes.TokensAt(now)))
		}
		if bytes == w.all {
			n = min(n, int(bytes.TokensAt(now))+maxWrongDebt)
		}
		if n > 0 {
			bytes.ReserveN(now, n)
		}
	}
}
