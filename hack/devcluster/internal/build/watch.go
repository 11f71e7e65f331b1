// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/progress"
)

const (
	signOfLife = 10 * time.Second // between two lines of a build's progress
	tailLines  = 30               // of the go command's output shown on failure
)

// counter turns the output of `go build -v` into a line of progress.
type counter struct {
	mu       sync.Mutex
	compiled int
	fetched  int
	last     string
	tail     []string
}

// countLine takes one line of output.
func (c *counter) countLine(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = append(c.tail, line)
	if len(c.tail) > tailLines {
		c.tail = c.tail[1:]
	}
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		c.fetched++
		c.last = strings.TrimPrefix(line, "go: downloading ")
	case !strings.ContainsAny(line, " :"):
		c.compiled++
		c.last = line
	}
}

// progressLine returns the progress message of a build that has run for elapsed.
func (c *counter) progressLine(elapsed time.Duration) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled+c.fetched == 0 {
		return fmt.Sprintf("    %s: linking, or reading the build cache", progress.Round(elapsed))
	}
	return fmt.Sprintf("    %s: %d modules fetched, %d packages compiled, last %s",
		progress.Round(elapsed), c.fetched, c.compiled, c.last)
}

// runWatched runs the go command and logs its progress every few seconds. On failure the error ends with the last lines of the
// output.
func runWatched(cmd *exec.Cmd, log *progress.Log) error {
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go: %w", err)
	}
	count := &counter{}
	scanned := make(chan struct{})
	go func() {
		defer close(scanned)
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			count.countLine(lines.Text())
		}
		_, _ = io.Copy(io.Discard, reader) // a line too long for the scanner must not block go
	}()
	finished := make(chan error, 1)
	go func() { finished <- cmd.Wait() }()

	begin := time.Now()
	ticker := time.NewTicker(signOfLife)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			log.Say("%s", count.progressLine(time.Since(begin)))
		case err := <-finished:
			_ = writer.Close() // a pipe's close cannot fail
			<-scanned
			if err != nil {
				return errors.Join(fmt.Errorf("running %s: %w", strings.Join(cmd.Args[:2], " "), err),
					errors.New(strings.Join(count.tail, "\n")))
			}
			return nil
		}
	}
}
