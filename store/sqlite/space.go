// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// reserve is the number of bytes that stay free on the disk. The largest transaction writes groupLimit chunks of blobs to the log, and
	// they need the same space again when they are moved to the file.
	reserve = 2 * groupLimit * store.BlobChunk
	// pageSize is the size of a page in bytes.
	pageSize = 4096
	// refusalTime is how long writes are refused without another attempt to move the log, which can take long and fails on a full disk.
	refusalTime = time.Second
)

// space is the free space beside a database.
type space struct {
	log string
	// free returns the free bytes of the disk that has a folder.
	free func(dir string) (int64, error)
	now  func() time.Time
	// Until refusedUntil, writes are refused with refusal.
	refusal      error
	refusedUntil time.Time
}

// newSpace returns the space of an existing database.
func newSpace(path string) space {
	if file, err := filepath.EvalSymlinks(path); err == nil { // the log is beside the file, not beside a link to it
		path = file
	}
	return space{log: path + "-wal", free: freeBytes, now: time.Now}
}

// measure returns the size of the log and the free bytes of its disk.
func (s *space) measure() (log, free int64, err error) {
	info, err := os.Stat(s.log)
	if err == nil {
		log = info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	free, err = s.free(filepath.Dir(s.log))
	return log, free, err
}

// refuse returns an error for writes, now and for a while.
func (s *space) refuse(err error) error {
	s.refusal, s.refusedUntil = err, s.now().Add(refusalTime)
	return err
}

// keepReserve returns an error if the next transaction could fill the disk. It first truncates the log if that helps. The writer calls it
// before each transaction. The pages of a log that has filled the disk could never be moved, because the file has to grow for new pages.
func (c *checkpointer) keepReserve(ctx context.Context) error {
	if c.space.now().Before(c.space.refusedUntil) {
		return c.space.refusal
	}
	size, free, err := c.space.measure()
	if err != nil {
		c.warnings.Do(func() { c.logger.Warn("comparing the log with the free space of its disk", "error", err) })
		return nil
	}
	if free >= size+reserve {
		return nil
	}
	var unmoved int64
	for _, patience := range []int{0, restartPatience} {
		log, err := c.truncateLog(ctx, patience)
		if err == nil {
			_, free, err = c.space.measure()
		}
		if err != nil {
			return c.space.refuse(fmt.Errorf("moving the log of a disk with %d free bytes: %w", free, err))
		}
		unmoved = int64(log.length-log.moved) * pageSize
		if free >= unmoved+reserve {
			return nil // although readers may use the log
		}
	}
	return c.space.refuse(fmt.Errorf("the disk has %d free bytes, and a write needs %d; enlarge the disk or delete other files on it: %w",
		free, unmoved+reserve, syscall.ENOSPC))
}

// truncateLog moves pages and returns the log's space to the disk, unless readers use the log. It uses the checkpointer's connection,
// because opening another one writes.
func (c *checkpointer) truncateLog(ctx context.Context, patience int) (log walLog, err error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return walLog{}, err
	}
	err = impatiently(ctx, conn, patience, func() error {
		log, err = checkpoint(ctx, conn, "TRUNCATE")
		return err
	})
	return log, errors.Join(err, conn.Close())
}
