// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
)

// Interval is how often a process reads the keys again and reports which it
// holds; well below the time after which the store takes it for dead.
const Interval = 10 * time.Second

// ErrAbsent says that nobody has made the keys yet.
var ErrAbsent = errors.New("the platform's keys are absent")

// Register is where processes report the keys that they hold.
type Register interface {
	// ReportKeys says that a live process holds these keys, fingerprints by id,
	// and returns the ids of the current ones. It is refused where a key that the
	// store needs is missing, or is another one.
	ReportKeys(ctx context.Context, process string, held map[string]string) (current []string, err error)
	// ForgetProcess says that a process has ended.
	ForgetProcess(ctx context.Context, process string) error
}

// Follower keeps a process's keys as they are.
type Follower struct {
	// Read reads the ring; ErrAbsent while there is none.
	Read func(ctx context.Context) (Ring, error)
	// Register takes the reports.
	Register Register
	// Process names this process among all, see ProcessName.
	Process string
	// Keys are kept up to date.
	Keys   *Keys
	Logger *slog.Logger
	// Pause waits between two reads; nil means for Interval.
	Pause func(ctx context.Context) error
}

// ProcessName is a name for this process that no other one has.
func ProcessName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%s/%s", role, host, strings.ToLower(rand.Text()[:5]))
}

// Refresh reads the keys once, reports them, and takes them over. What was held
// before stays when that fails.
func (f *Follower) Refresh(ctx context.Context) error {
	ring, err := f.Read(ctx)
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	current, err := f.Register.ReportKeys(ctx, f.Process, ring.Fingerprints())
	if err != nil {
		return fmt.Errorf("reporting the keys: %w", err)
	}
	return f.Keys.Set(ring, current)
}

// Await returns once the process has keys. It waits for those that are not made
// yet; any other failure ends it.
func (f *Follower) Await(ctx context.Context) error {
	for {
		err := f.Refresh(ctx)
		if err == nil && f.Keys.SealingKey() == "" {
			err = ErrNoKeys // read, but none of them is in use yet
		}
		if !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrNoKeys) {
			return err
		}
		f.Logger.InfoContext(ctx, "waiting for the platform's keys, which the manager makes", "reason", err)
		if err := f.Wait(ctx); err != nil {
			return err
		}
	}
}

// farewell is how long the last report may take.
const farewell = 5 * time.Second

// Run refreshes the keys until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	for f.Wait(ctx) == nil {
		if err := f.Refresh(ctx); err != nil && ctx.Err() == nil {
			f.Logger.ErrorContext(ctx, "reading the platform's keys again; those read before stay in use", "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := f.Register.ForgetProcess(ctx, f.Process); err != nil {
		f.Logger.WarnContext(ctx, "a process that ends counts as alive for a minute", "process", f.Process, "error", err)
	}
	return nil
}

// Wait waits until the keys are to be read again; an error when ctx ends before.
func (f *Follower) Wait(ctx context.Context) error {
	if f.Pause != nil {
		return f.Pause(ctx)
	}
	return pause.For(ctx, Interval)
}

// FromFolder reads the ring from the folder where the Secret is mounted.
func FromFolder(dir string) func(context.Context) (Ring, error) {
	return func(context.Context) (Ring, error) {
		data := map[string][]byte{}
		for _, entry := range []string{DerivationEntry, SealingEntry, RevokedEntry} {
			raw, err := os.ReadFile(filepath.Join(dir, entry)) //nolint:gosec // the folder is named by a flag
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return Ring{}, fmt.Errorf("reading the mounted Secret %s: %w", SecretName, err)
			}
			data[entry] = raw
		}
		if len(data) == 0 {
			return Ring{}, fmt.Errorf("no keys in %s: %w", dir, ErrAbsent)
		}
		return Parse(data)
	}
}
