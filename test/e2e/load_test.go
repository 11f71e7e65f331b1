// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"sync"
	"time"
)

// load calls webhooks at a steady rate until the test stops it, regardless of the responses.
type load struct {
	stop    context.CancelFunc
	senders sync.WaitGroup

	mutex   sync.Mutex
	replies []reply
}

// startLoad sends perSecond requests to the hooks in turn.
func startLoad(ctx context.Context, gateway string, perSecond int, hooks ...*hook) *load {
	sending, stop := context.WithCancel(ctx)
	l := &load{stop: stop}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	l.senders.Go(func() {
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				l.senders.Go(func() { l.note(hooks[i%len(hooks)].post(ctx, gateway, `{"name": "load"}`)) })
			case <-sending.Done():
				return
			}
		}
	})
	return l
}

func (l *load) note(r reply) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.replies = append(l.replies, r)
}

// end stops sending, waits for the answers and returns them all.
func (l *load) end() []reply {
	l.stop()
	l.senders.Wait()
	return l.replies
}
