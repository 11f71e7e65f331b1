// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// Claims continue during a fetch, even if it never ends.
func TestClaims_ContinueDuringBundleFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		one := started(t, p, "one", nil, nil)
		p.await(t, p.queue("hello", "text/plain", "x"))
		coming := make(chan struct{})
		p.set(func() {
			p.want = []string{p.addBundleLocked(t, bundle.Files{"agents/a.yaml": []byte("name: a\nmodel: openai/x\n")})}
			p.onBundle = func() error { <-coming; return nil }
		})
		time.Sleep(time.Second)
		claims := func() int { return p.claims["one"] }
		before := look(p, claims)
		began := time.Now()
		require.Equal(t, "Hello!", p.await(t, p.queue("hello", "text/plain", "x")).Output)
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
		time.Sleep(10 * time.Second)
		require.Less(t, look(p, claims)-before, 30, "it does not ask all the time")
		close(coming)
		synctest.Wait()
		require.Contains(t, p.last().Digests, p.want[0], "and says at once that it has it")
		require.NoError(t, one.end(t))
	})
}

// Pauses grow, regardless of how often dispatch asks.
func TestPrefetch_RetriesWithGrowingPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		p.onBundle = func() error { return errors.New("away") }
		p.want = []string{p.digest}
		one := started(t, p, "one", nil, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		fetched := look(p, func() int { return p.fetched[p.digest] })
		require.Greater(t, fetched, 2)
		require.Less(t, fetched, 10)
		p.set(func() { p.onBundle = nil })
		p.until(t, func() bool { return len(p.held["one"]) == 1 })
		require.NoError(t, one.end(t))
	})
}

// The runner names the bundle and does not fetch it again. The run waits for a runner that can open
// it.
func TestBundles_ReportUnopenedBundle(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{"damaged": "something else", "of a later release": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPort(t, repo())
				p.digest = p.addBundle(t, bundle.Files{"agents/a.yaml": []byte("name: a\nmodel: openai/x\nlater: true\n")})
				if data != "" {
					p.bundles[p.digest] = []byte(data)
				}
				p.want = []string{p.digest}
				one := started(t, p, "one", nil, nil)
				run := p.queue("hello", "text/plain", "x")
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, "queued", p.status(run))
				require.LessOrEqual(t, p.attempts(run), 1, "before it was known")
				require.Equal(t, 1, look(p, func() int { return p.fetched[p.digest] }))
				require.Contains(t, p.last().Refused, p.digest)

				time.Sleep(10 * time.Minute)
				synctest.Wait()
				require.NoError(t, one.end(t))
				require.Greater(t, p.fetched[p.digest], 1, "it may have come damaged")
				for _, release := range p.releases {
					require.Equal(t, 5, release.DelaySeconds)
				}
			})
		})
	}
}

// Dispatch can hand out a run although the runner named its bundle.
func TestBundles_ReleaseRunOfRefusedBundle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		p.bundles[p.digest] = []byte("something else")
		one := started(t, p, "one", nil, func(o *serve.Options) { o.Concurrency = 1 })
		run := p.queue("hello", "text/plain", "x")
		p.until(t, func() bool { return p.released == 1 })
		p.set(func() {
			r := p.runs[run]
			r.status, r.runner, r.run.BundleDigest = "running", "one", p.digest
			r.run.Token++
		})
		p.until(t, func() bool { return p.released == 2 })
		require.NoError(t, one.end(t))
		require.Equal(t, []int{5, 5}, []int{p.releases[0].DelaySeconds, p.releases[1].DelaySeconds})
		require.Equal(t, 1, p.fetched[p.digest])
	})
}

func TestBundles_FailRunOfDeletedBundle(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	p.digest = "sha256:" + strings.Repeat("0", 64)
	one := started(t, p, "one", nil, nil)
	require.Equal(t, runerror.BundleUnavailable, p.await(t, p.queue("hello", "text/plain", "x")).ErrorCode)
	require.NoError(t, one.end(t))
}

// A run does not wait for its bundle forever.
func TestBundles_ReleaseRunAfterFetchTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowPort{runnerPort: newPort(t, repo()).as("one")}
		one := started(t, slow.port, "one", nil, func(o *serve.Options) { o.Dispatch = slow })
		slow.queue("hello", "text/plain", "x")
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		require.NoError(t, one.end(t))
		require.NotEmpty(t, slow.releases)
		require.Equal(t, 5, slow.releases[0].DelaySeconds)
	})
}

// slowPort sends no bundle.
type slowPort struct{ *runnerPort }

func (s *slowPort) Bundle(ctx context.Context, _ string, _ int64) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The latest refusals are remembered.
func TestBundles_LimitRememberedRefusals(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	cache := serve.NewBundleCache(p.as("one"), 4)
	for i := range dispatchapi.MaxDigests + 3 {
		digest := fmt.Sprintf("sha256:%064d", i)
		p.bundles[digest] = []byte("damaged")
		for range 2 {
			_, err := cache.Get(t.Context(), digest)
			require.ErrorIs(t, err, serve.ErrUnopened)
		}
		require.Equal(t, 1, p.fetched[digest])
	}
	refused := cache.Refusals()
	require.Len(t, refused, dispatchapi.MaxDigests)
	require.Equal(t, fmt.Sprintf("sha256:%064d", 3), refused[0])
}

// A journal that is too large for the claim is fetched.
func TestJournal_FetchesLongJournal(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	one := started(t, p, "one", nil, nil)
	first := p.queue("charger", "text/plain", "x")
	p.await(t, first)
	require.NoError(t, one.end(t))

	second := p.queue("charger", "text/plain", "x")
	p.set(func() { p.runs[second].run.JournalElsewhere, p.journals[second] = true, p.journals[first] })
	var calls atomic.Int32
	two := started(t, p, "two", func(context.Context) error { calls.Add(1); return nil }, nil)
	require.Equal(t, "charged", p.await(t, second).Output)
	require.NoError(t, two.end(t))
	require.Zero(t, calls.Load())
}

// After a while the run is released for a runner that can read the journal.
func TestJournal_ReleasesRunOfNewerRelease(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	run := p.queue("hello", "text/plain", "x")
	p.set(func() { p.journals[run] = []dispatchapi.JournalEntry{{Sequence: 1, Kind: "later", Data: []byte(`{}`)}} })
	one := started(t, p, "one", nil, nil)
	p.until(t, func() bool { return p.released > 0 })
	require.NoError(t, one.end(t))
	require.Equal(t, 5, p.releases[0].DelaySeconds)
	require.Empty(t, p.ends)
}

// The timeout uses the clock of the database and not of the runner.
func TestTimeout_CountsFromFirstAttempt(t *testing.T) {
	t.Parallel()
	for age, code := range map[time.Duration]runerror.Code{14 * time.Minute: "", 16 * time.Minute: runerror.Timeout} {
		t.Run(age.String(), func(t *testing.T) {
			p := newPort(t, repo())
			run := p.queue("hello", "text/plain", "x")
			now := time.Now().Add(-1000 * time.Hour)
			p.set(func() { p.runs[run].run.StartedAt, p.runs[run].run.Now = now.Add(-age), now })
			one := started(t, p, "one", nil, nil)
			require.Equal(t, code, p.await(t, run).ErrorCode, age)
			require.NoError(t, one.end(t))
		})
	}
}
