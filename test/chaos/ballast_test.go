// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
)

// refillEvery is the time between two attempts to take space that the store has returned.
const refillEvery = 50 * time.Millisecond

// ballast is a file that keeps a store's disk full.
type ballast struct {
	path    string
	stop    context.CancelFunc // nil while there is no file
	filling sync.WaitGroup
}

// fill takes all space of the disk, and later all space that the store returns.
func (b *ballast) fill(ctx context.Context) error {
	if err := b.takeAll(); err != nil {
		return err
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.filling.Go(func() {
		for pause.For(ctx, refillEvery) == nil {
			_ = b.takeAll() // the next attempt repeats it
		}
	})
	return nil
}

// takeAll makes the file longer until the disk is full.
func (b *ballast) takeAll() error {
	file, err := os.OpenFile(b.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	if err != nil {
		return err
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = file.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

// remove returns all space.
func (b *ballast) remove() error {
	b.release()
	return os.RemoveAll(b.path) // there is none if the store had filled the disk
}

// release ends the filling.
func (b *ballast) release() {
	if b.stop != nil {
		b.stop()
		b.filling.Wait()
	}
}
