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

// wrongSecrets limits the cost of requests with a wrong or unverified secret or signature, per connector.
// Requests with a right secret or signature do not count, so attackers cannot lock out the owner. Bodies that
// must be read before their signature can be verified are an exception: attackers can use up their capacity.
type wrongSecrets struct {
	now        func() time.Time
	connectors *lru.Cache[store.Key, *wrongCount]

	mutex sync.Mutex
	// reading has the bytes that are being read and are not verified, by connector and by project.
	reading   map[store.Key]int64
	byProject map[uuid.UUID]int64
	allNow    int64
	// all limits the wrong bytes of all connectors.
	all *rate.Limiter
}

// wrongCount has the limits for one connector or one project.
type wrongCount struct{ answers, bytes *rate.Limiter }

func newWrongSecrets(now func() time.Time) *wrongSecrets {
	connectors, err := lru.New[store.Key, *wrongCount](maxWrong)
	if err != nil {
		panic("creating a cache of connectors: " + err.Error()) // lru.New only fails for sizes below 1
	}
	return &wrongSecrets{
		now: now, connectors: connectors, reading: map[store.Key]int64{}, byProject: map[uuid.UUID]int64{},
		all: rate.NewLimiter(wrongBytesOfAll, wrongBurstOfAll),
	}
}

// entryOf returns the limits of an existing connector. Unknown IDs are not cached.
func (w *wrongSecrets) entryOf(connector store.Key) *wrongCount {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found, ok := w.connectors.Get(connector)
	if !ok {
		found = &wrongCount{rate.NewLimiter(wrongAnswers, wrongAnswersBurst), rate.NewLimiter(wrongBytes, wrongBytesBurst)}
		if connector.ID == uuid.Nil { // a project
			found.bytes = rate.NewLimiter(wrongBytesOfProject, wrongBurstOfProject)
		}
		w.connectors.Add(connector, found)
	}
	return found
}

// countWrong counts a wrong request, and reports whether it gets its response.
func (w *wrongSecrets) countWrong(connector store.Key) bool {
	return w.entryOf(connector).answers.AllowN(w.now(), 1)
}

// budgets returns the limiters that count the wrong bytes of a connector.
func (w *wrongSecrets) budgets(connector store.Key) []*rate.Limiter {
	return []*rate.Limiter{w.entryOf(connector).bytes, w.entryOf(store.Key{ProjectID: connector.ProjectID}).bytes, w.all}
}

// canReadLarge reports whether large bodies of a connector are read: unless the wrong bytes of the
// connector, its project or all connectors exceed a limit. The limit for all only applies to
// projects with more than one maximum body of recent wrong bytes.
func (w *wrongSecrets) canReadLarge(connector store.Key) bool {
	now, ofProject := w.now(), w.entryOf(store.Key{ProjectID: connector.ProjectID}).bytes
	for _, bytes := range w.budgets(connector) {
		if bytes.TokensAt(now) < 0 && (bytes != w.all || ofProject.TokensAt(now) < wrongBurstOfProject-MaxBody) {
			return false
		}
	}
	return true
}

// reserveBody reserves capacity for a body before verification. large means that it may exceed
// store.MaxInlineInput. After true the caller calls end.
func (w *wrongSecrets) reserveBody(connector store.Key, size int64, large bool) bool {
	if large && !w.canReadLarge(connector) {
		return false
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	own, ofProject := w.reading[connector], w.byProject[connector.ProjectID]
	project := min(maxUnverified, (maxAllUnverified-w.allNow+ofProject)/2) // half of what other projects leave
	if ofProject+size > project || own+size > (project-ofProject+own)/2 || large && w.allNow+size > maxAllUnverified-reservedForSmall {
		return false
	}
	w.reading[connector] += size
	w.byProject[connector.ProjectID] += size
	w.allNow += size
	return true
}

// settleBody frees the capacity of begin for the same size. read is the number of bytes without a right
// signature. Bytes of large bodies count in full, if necessary as debt. Small bodies are always
// read, so they count at most the remaining budget and do not block large bodies for long. The same
// applies to many projects with a few wrong bytes each: the debt of all is at most maxWrongDebt.
func (w *wrongSecrets) settleBody(connector store.Key, size, read int64, large bool) {
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
