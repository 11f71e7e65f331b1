// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

const (
	// DefaultMemory is the default memory limit of a script in bytes, MinMemory and MaxMemory are its bounds. The memory of
	// the idle process, about 30 MB, comes on top.
	DefaultMemory = 128 << 20
	MinMemory     = 64 << 20
	MaxMemory     = 512 << 20
)

// Main is the body of a child: it confines its process and executes the calls that arrive at stdin until stdin ends.
func Main(memory uint64) error {
	if memory < MinMemory || memory > MaxMemory {
		return fmt.Errorf("the memory limit must be between %d and %d bytes", MinMemory, MaxMemory)
	}
	// The collector works harder before the process reaches its limit and dies.
	debug.SetMemoryLimit(int64(memory / 4 * 3))
	if err := confine(memory); err != nil {
		return reportUnconfined(err)
	}
	return Serve(os.Stdin, os.Stdout, func() { os.Exit(0) })
}

// reportUnconfined tells the parent why the child executes no scripts, and waits until the parent has read it.
func reportUnconfined(err error) error {
	sent := writeMessage(os.Stdout, fromChild{Unconfined: err.Error()})
	_, drained := io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, sent, drained)
}
