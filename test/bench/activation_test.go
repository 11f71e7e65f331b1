// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These flags set the load of BenchmarkActivation. hack/bench.sh passes them on.
var (
	activationTime = flag.Duration("activation.time", 5*time.Second, "how long webhooks arrive on each side of a round")
	activationRate = flag.Int("activation.rate", 200, "how many arrive a second")
)

const (
	// codeConnectors is the number of connectors that code defines. Every second connector is sync.
	codeConnectors = 20
	// flipEvery is the interval of the activations.
	flipEvery = 100 * time.Millisecond
	// activationAim limits the ratio of webhook response times with activations to the times without activations.
	activationAim = 3
	// settled bounds the wait for the last runs.
	settled = time.Minute
)

// BenchmarkActivation sends webhooks at a steady rate to connectors that code defines. Meanwhile two deployments are live in
// turn, and each deployment links all connectors to another agent. The benchmark measures three figures:
//   - the number of failed webhooks,
//   - the response times, compared with the same load without activations,
//   - the time of an activation, compared with a transaction of one INSERT.
func BenchmarkActivation(b *testing.B) {
	engines(b, func(b *testing.B, e *database) {
		silence(b)
		s, name := newTurns(b, e), "activation/"+e.name
		alternate(b, func() []Figure {
			trivial := s.side(b, e.commit)
			flips := s.side(b, s.flip)
			return []Figure{
				Cost(name+"/p99", "ms", Percentile(flips.answered, 0.99), Percentile(trivial.answered, 0.99), activationAim),
				Cost(name+"/time", "ms", Percentile(flips.changes, 0.5), Percentile(trivial.changes, 0.5), 0),
			}
		})
		s.settle(b, e)
		print(b, Cost(name+"/failed", "requests", float64(s.failed), float64(s.sent), 0))
		assert.Zero(b, s.failed, "webhooks failed, the first one with: %v", s.first)
	})
}

// turns are two deployments that take turns in being live, and callers of their connectors.
type turns struct {
	store        store.Store
	activations  [2]store.Activation
	flips        int
	callers      []*caller
	mutex        sync.Mutex
	sent, failed int
	first        error // error of the first failed webhook
}

// fail counts webhooks that failed.
func (s *turns) fail(n int, err error) {
	s.failed += n
	s.first = cmpErr(s.first, err)
}

// newTurns makes the first deployment live and starts a gateway and a runner.
func newTurns(b *testing.B, e *database) *turns {
	b.Helper()
	scene, s := storebench.NewScene(b, e.store, 1), &turns{store: e.store}
	agents := []string{"first", "second"}
	for i, agent := range agents {
		s.activations[i] = store.Activation{Deployment: release(b, e.store, scene, scripted{name: agents[0], text: agent}, scripted{name: agents[1], text: agent})}
		for c := range codeConnectors {
			connector, links := ofCode(b, scene, c, agents, agent)
			s.activations[i].Connectors = append(s.activations[i].Connectors, connector)
			s.activations[i].Links = append(s.activations[i].Links, links...)
		}
	}
	require.NoError(b, s.flip(b.Context()))
	admit(b, e.store, scene)
	gw := gateway(b, e.store)
	runnerOf(b, gw, tokenOf(scene.Project), executedSlots)
	for _, connector := range s.activations[0].Connectors {
		s.callers = append(s.callers, dial(b, gw.PublicAddr(), pathOf(scene, connector.ID)))
	}
	return s
}

// ofCode are the rows of a file of connectors/, as an activation projects it, that links an agent.
func ofCode(b *testing.B, scene *storebench.Scene, i int, agents []string, agent string) (store.Connector, []store.Link) {
	b.Helper()
	file := fmt.Sprintf("type: webhook\nmode: inbound\nagents: [%s]\nconfig: {authentication: none}\n", agent)
	if i%2 == 1 {
		file = fmt.Sprintf("type: webhook\nmode: sync\nagents: [%s]\nconfig: {authentication: none, timeout_seconds: %d}\n", agent, hookTimeout)
	}
	parsed, err := bundle.ParseConnector(fmt.Sprintf("c-%02d", i), []byte(file), agents)
	require.NoError(b, err)
	mirror := projection.MirrorOf("bench", "dev", parsed)
	ids := mirror.Identity(store.Key{ProjectID: scene.Project, ID: scene.Environment})
	row, err := mirror.Row(mirror.Connector, ids, "", "")
	require.NoError(b, err)
	return row, mirror.Rows(scene.Project)
}

// flip activates the deployment that is not live, with a request time of now.
func (s *turns) flip(ctx context.Context) error {
	a, now := s.activations[s.flips%len(s.activations)], time.Now()
	a.RequestedAt = &now
	s.flips++
	result, err := s.store.Activate(ctx, a)
	if err == nil && !result.Live {
		err = store.ErrNotLive
	}
	return err
}

// sided holds the times of one side of a round: of its responses and of its changes.
type sided struct{ answered, changes []time.Duration }

// side sends webhooks and calls change at intervals.
func (s *turns) side(b *testing.B, change func(context.Context) error) (out sided) {
	b.Helper()
	var group sync.WaitGroup
	begin := time.Now()
	gap := time.Second * time.Duration(len(s.callers)) / time.Duration(*activationRate)
	for i, c := range s.callers {
		group.Go(func() {
			at(begin.Add(gap*time.Duration(i)/time.Duration(len(s.callers))), gap, func(due time.Time) {
				err := c.call()
				s.mutex.Lock()
				defer s.mutex.Unlock()
				out.answered = append(out.answered, time.Since(due))
				if s.sent++; err != nil {
					s.fail(1, errors.Join(err, c.connect(c.conn.RemoteAddr().String())))
				}
			})
		})
	}
	at(begin, flipEvery, func(time.Time) {
		begun := time.Now()
		assert.NoError(b, change(b.Context()))
		out.changes = append(out.changes, time.Since(begun))
	})
	group.Wait()
	return out
}

// at calls do at regular times. A slow call delays the next calls but drops none.
func at(due time.Time, every time.Duration, do func(due time.Time)) {
	for end := due.Add(*activationTime); due.Before(end); due = due.Add(every) {
		<-time.After(time.Until(due))
		do(due)
	}
}

// settle waits for the last runs. A run that did not complete or is missing counts as failed.
func (s *turns) settle(b *testing.B, e *database) {
	b.Helper()
	require.Eventually(b, func() bool {
		open, err := e.count(b.Context(), `SELECT count(*) FROM open_runs`)
		return err == nil && open == 0
	}, settled, 50*time.Millisecond, "runs do not end")
	completed, err := e.count(b.Context(), `SELECT count(*) FROM ended_runs WHERE status = 'completed'`)
	require.NoError(b, err)
	if missing := s.sent - s.failed - int(completed); missing != 0 {
		s.fail(missing, fmt.Errorf("%d of %d runs completed", completed, s.sent))
	}
}
