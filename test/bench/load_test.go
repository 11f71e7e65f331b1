// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	warmUp  = time.Second
	measure = 3 * time.Second
)

// rounds is the number of alternating rounds.
var rounds = flag.Int("rounds", 5, "number of alternating rounds; the median counts")

// alternate measures figures in several rounds, alternating with their yardsticks, and prints the summary of the rounds.
func alternate(b *testing.B, figures func() []Figure) {
	b.Helper()
	var rows [][]Figure
	for range max(*rounds, 1) {
		for row, f := range figures() {
			if row == len(rows) {
				rows = append(rows, nil)
			}
			rows[row] = append(rows[row], f)
		}
	}
	for _, row := range rows {
		print(b, Over(row))
	}
}

// body is 1 kB of JSON.
var body = []byte(`{"name":"Ada","text":"` + strings.Repeat("x", 976) + `"}`)

// caller posts over one persistent connection. It uses little processor time, so that the server gets the machine's time.
type caller struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
}

func dial(tb testing.TB, addr, path string) *caller {
	tb.Helper()
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, addr, len(body), body)
	c := &caller{request: request}
	require.NoError(tb, c.connect(addr))
	tb.Cleanup(func() { require.NoError(tb, c.conn.Close()) })
	return c
}

// connect opens a connection and replaces the previous one.
func (c *caller) connect(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	if c.conn != nil {
		_ = c.conn.Close() // it has failed
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
	return nil
}

var errStatus = errors.New("the answer is no 200")

func (c *caller) call() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	length, refused := 0, ""
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("HTTP/1.1 200")):
		case bytes.HasPrefix(line, []byte("HTTP/1.1 ")):
			refused = string(line[9:12])
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[16:]))); err != nil {
				return err
			}
		case len(line) == 2:
			if refused != "" {
				said, err := io.ReadAll(io.LimitReader(c.reader, int64(length)))
				return fmt.Errorf("%w: %s: %s", cmpErr(err, errStatus), refused, said)
			}
			_, err := io.CopyN(io.Discard, c.reader, int64(length))
			return err
		}
	}
}

// load repeats a call in every client and returns how long each took.
func load(tb testing.TB, clients int, call func(client int) error) (durations []time.Duration, perSecond float64) {
	tb.Helper()
	var group sync.WaitGroup
	var mutex sync.Mutex
	begin := time.Now().Add(warmUp)
	end := begin.Add(measure)
	for client := range clients {
		group.Go(func() {
			var mine []time.Duration
			for {
				at := time.Now()
				if at.After(end) {
					break
				}
				if err := call(client); err != nil {
					tb.Error(err)
					return
				}
				if at.After(begin) {
					mine = append(mine, time.Since(at))
				}
			}
			mutex.Lock()
			defer mutex.Unlock()
			durations = append(durations, mine...)
		})
	}
	group.Wait()
	return durations, float64(len(durations)) / measure.Seconds()
}

// post loads an address with POSTs of the body.
func post(tb testing.TB, clients int, addr, path string) ([]time.Duration, float64) {
	tb.Helper()
	callers := make([]*caller, clients)
	for i := range callers {
		callers[i] = dial(tb, addr, path)
	}
	return load(tb, clients, func(client int) error { return callers[client].call() })
}
