// SPDX-License-Identifier: Apache-2.0

package secrets

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

// FollowInterval is how often a process reads the keys and reports them. It is well below the time after
// which the store considers a process dead.
const FollowInterval = 10 * time.Second

// ErrKeysAbsent means that the keys have not been created yet.
var ErrKeysAbsent = errors.New("the platform's keys are absent")

// KeyRegister receives reports about the keys of processes.
type KeyRegister interface {
	// ReportKeys reports the keys of a live process, fingerprints by ID, and returns the IDs of the
	// current keys. It returns an error if a key that the store needs is missing or different.
	ReportKeys(ctx context.Context, process string, held map[string]string) (current []string, err error)
	// ForgetProcess reports that a process has ended.
	ForgetProcess(ctx context.Context, process string) error
}

// Follower updates a process's keys.
type Follower struct {
	// Read reads the ring. It returns ErrKeysAbsent without a ring.
	Read func(ctx context.Context) (Ring, error)
	// Register takes the reports.
	Register KeyRegister
	// Process identifies this process, see ProcessName.
	Process string
	// Keys are updated.
	Keys   *Keys
	Logger *slog.Logger
	// Pause waits between two reads; nil waits for FollowInterval.
	Pause func(ctx context.Context) error
}

// ProcessName returns a unique name for this process.
func ProcessName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%s/%s", role, host, strings.ToLower(rand.Text()[:5]))
}

// Refresh reads the keys once, reports them and replaces the current ones. If it fails, the current
// keys stay.
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

// Await returns when the process has keys. It waits for keys that have not been created yet and
// returns any other error.
func (f *Follower) Await(ctx context.Context) error {
	for {
		err := f.Refresh(ctx)
		if err == nil && f.Keys.SealingKey() == "" {
			err = ErrNoKeys // read, but none is in use yet
		}
		if !errors.Is(err, ErrKeysAbsent) && !errors.Is(err, ErrNoKeys) {
			return err
		}
		f.Logger.InfoContext(ctx, "waiting for the platform's keys, which the manager creates", "reason", err)
		if err := f.Wait(ctx); err != nil {
			return err
		}
	}
}

// farewell limits the last report.
const farewell = 5 * time.Second

// Run refreshes the keys until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	for f.Wait(ctx) == nil {
		if err := f.Refresh(ctx); err != nil && ctx.Err() == nil {
			f.Logger.ErrorContext(ctx, "reading the platform's keys again; the previous keys stay in use", "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := f.Register.ForgetProcess(ctx, f.Process); err != nil {
		f.Logger.WarnContext(ctx, "the ended process counts as alive for one minute", "process", f.Process, "error", err)
	}
	return nil
}

// Wait waits for the next read. It returns an error if ctx ends before.
func (f *Follower) Wait(ctx context.Context) error {
	if f.Pause != nil {
		return f.Pause(ctx)
	}
	return pause.For(ctx, FollowInterval)
}

// RingFromFolder reads the ring from the folder of the mounted Secret.
func RingFromFolder(dir string) func(context.Context) (Ring, error) {
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
			return Ring{}, fmt.Errorf("no keys in %s: %w", dir, ErrKeysAbsent)
		}
		return ParseRing(data)
	}
}
