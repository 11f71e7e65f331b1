// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// trickle is a body whose pieces arrive with pauses, until the deadline.
type trickle struct {
	pieces int
	size   int
	every  time.Duration
	until  time.Time
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.pieces == 0 {
		return 0, io.EOF
	}
	if left := time.Until(b.until); left < b.every {
		time.Sleep(left)
		return 0, fmt.Errorf("reading: %w", os.ErrDeadlineExceeded)
	}
	time.Sleep(b.every)
	b.pieces--
	return min(b.size, len(p)), nil
}

// The average counts, and only the time of waiting for the body.
func TestPaced_RequiresPace(t *testing.T) {
	t.Parallel()
	pace := Pace{BytesPerSecond: 1000, Grace: 5 * time.Second}
	for name, c := range map[string]struct {
		body  trickle
		pause time.Duration // pause of the reader after each piece
		slow  bool
		came  int
	}{
		"fast":                     {trickle{pieces: 100, size: 1000, every: time.Millisecond}, 0, false, 100},
		"just as fast":             {trickle{pieces: 100, size: 1000, every: time.Second}, 0, false, 100},
		"too slow":                 {trickle{pieces: 100, size: 500, every: time.Second}, 0, true, 9},
		"nothing comes":            {trickle{pieces: 100, size: 1000, every: time.Hour}, 0, true, 0},
		"a single byte at a time":  {trickle{pieces: 100, size: 1, every: 4 * time.Second}, 0, true, 1},
		"the reader is slow alone": {trickle{pieces: 100, size: 1000, every: time.Second}, time.Hour, false, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, came := c.body, 0
				r := &paced{body: &body, pace: pace, now: time.Now, until: func(at time.Time) { body.until = at }}
				for {
					_, err := r.Read(make([]byte, 1000))
					if err != nil {
						require.Equal(t, c.slow, TooSlow(err))
						break
					}
					came++
					time.Sleep(c.pause)
				}
				require.Equal(t, c.came, came)
			})
		})
	}
}

// The total limit applies regardless of the pace.
func TestPaced_LimitsTotalTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := trickle{pieces: 100, size: 1000, every: time.Second}
		begin := time.Now()
		r := &paced{body: &body, pace: Pace{BytesPerSecond: 1000, Grace: 5 * time.Second, Most: 20 * time.Second}, now: time.Now, until: func(at time.Time) { body.until = at }}
		_, err := io.Copy(io.Discard, r)
		require.True(t, TooSlow(err), err)
		require.Equal(t, 20*time.Second, time.Since(begin))
	})
}

// reader reads a piece after each pause, until the deadline.
type reader struct {
	every time.Duration
	until time.Time
}

func (r *reader) Write(p []byte) (int, error) {
	if left := time.Until(r.until); left < r.every {
		time.Sleep(left)
		return 0, fmt.Errorf("writing: %w", os.ErrDeadlineExceeded)
	}
	time.Sleep(r.every)
	return len(p), nil
}

// Only the time of waiting for the reader counts.
func TestPacedAnswer_RequiresPace(t *testing.T) {
	t.Parallel()
	pace := Pace{BytesPerSecond: 1000, Grace: 5 * time.Second}
	for name, c := range map[string]struct {
		every, pause time.Duration
		size, taken  int
	}{
		"fast":                     {time.Millisecond, 0, 1000, 100},
		"just as fast":             {time.Second, 0, 1000, 100},
		"too slow":                 {time.Second, 0, 500, 10},
		"nothing is read":          {time.Hour, 0, 1000, 0},
		"a large piece":            {100 * time.Second, 0, 100_000, 100},
		"the writer is slow alone": {time.Second, time.Hour, 1000, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to, taken := &reader{every: c.every}, 0
				w := &PacedAnswer{w: to, pace: pace, now: time.Now, until: func(at time.Time) { to.until = at }}
				for range 100 {
					if _, err := w.Write(make([]byte, c.size)); err != nil {
						require.True(t, TooSlow(err))
						break
					}
					taken++
					time.Sleep(c.pause)
				}
				require.Equal(t, c.taken, taken)
				w.Done()
				require.Zero(t, to.until)
			})
		})
	}
}

// The pace replaces the deadline of a body.
func TestPaced_ReplacesBodyTimeout(t *testing.T) {
	t.Parallel()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	answered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(Paced(w, r.Body, Pace{BytesPerSecond: 1, Grace: time.Hour}))
		require.NoError(t, err)
		BodyRead(w)
		w.WriteHeader(http.StatusOK)
	}), writeTimeout).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", &trickle{pieces: 1, size: 1, until: time.Now().Add(time.Hour)}))
	require.Equal(t, []string{"body", "body", "body", "none"}, w.set)
}
