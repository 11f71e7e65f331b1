// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rowSize is the size of a row with the given number of pages.
const rowSize = pages * pageSize

func addRow(t *testing.T, w *writer) {
	t.Helper()
	write(t, w, `INSERT INTO t VALUES ($1)`, make([]byte, rowSize))
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// freeIs returns a disk with the given number of free bytes.
func freeIs(bytes int64) func(string) (int64, error) {
	return func(string) (int64, error) { return bytes, nil }
}

// If the disk is almost full, a write first moves the log and returns its space.
func TestKeepReserve_TruncatesLog(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, neverFires)
	addRow(t, w)
	addRow(t, w)
	require.Greater(t, sizeOf(t, path+"-wal"), int64(2*rowSize), "the disk has enough space")
	c.space.free = freeIs(reserve + rowSize)
	addRow(t, w)
	require.Less(t, sizeOf(t, path+"-wal"), int64(2*rowSize), "the log has the last row only")
}

// A reader keeps the log's space, but not the writer from writing, while the pages that are left to move have enough space.
func TestKeepReserve_WritesBesideReaders(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, neverFires)
	addRow(t, w)
	addRow(t, w)
	require.NoError(t, c.checkpointOnce(t.Context()))
	reader := reading(t, path)
	addRow(t, w)
	long := sizeOf(t, path+"-wal")
	c.space.free = freeIs(reserve + 2*rowSize)
	addRow(t, w)
	require.GreaterOrEqual(t, sizeOf(t, path+"-wal"), long)
	require.NoError(t, reader.Rollback())
}

// If a reader keeps pages from being moved that need more space than the disk has, writes are refused until it ends. During a refusal,
// nothing else is tried.
func TestKeepReserve_RefusesWhileReadersKeepPages(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, neverFires)
	now, measured := time.Unix(0, 0), 0
	c.space.now = func() time.Time { return now }
	reader := reading(t, path)
	addRow(t, w)
	c.space.free = func(string) (int64, error) {
		measured++
		return reserve + rowSize/2, nil
	}
	refused := insert(t, w, `INSERT INTO t VALUES ('refused')`)
	require.ErrorIs(t, refused, syscall.ENOSPC)
	require.ErrorContains(t, refused, "free bytes, and a write needs")
	tries := measured
	require.ErrorIs(t, insert(t, w, `INSERT INTO t VALUES ('refused')`), syscall.ENOSPC)
	require.Equal(t, tries, measured)

	require.NoError(t, reader.Rollback())
	now = now.Add(refusalTime)
	write(t, w, `INSERT INTO t VALUES ('stored')`)
}

// If the log cannot be moved, writes are refused, also those outside a transaction.
func TestKeepReserve_RefusesWithoutMove(t *testing.T) {
	t.Parallel()
	w, c, _ := written(t, neverFires)
	c.space.free = freeIs(0)
	require.NoError(t, c.db.Close())
	require.ErrorContains(t, insert(t, w, `INSERT INTO t VALUES ('refused')`), "moving the log of a disk with 0 free bytes")
	require.ErrorContains(t, w.runExclusive(t.Context(), nil), "moving the log of a disk with 0 free bytes")
}

// Free space that cannot be measured refuses no write.
func TestKeepReserve_WritesWithoutMeasure(t *testing.T) {
	t.Parallel()
	w, c, _ := written(t, neverFires)
	c.space.free = func(string) (int64, error) { return 0, syscall.EACCES }
	addRow(t, w)
}

// The log of a database behind a link is beside its file.
func TestKeepReserve_FollowsLinks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Symlink(path, link))
	of := newSpace(link)
	require.Equal(t, path+"-wal", of.log)
}

// A store may fill its disk with writes of any size: the disk always has space for the pages that are left to move.
func TestKeepReserve_LogCanAlwaysMove(t *testing.T) {
	t.Parallel()
	w, c, path := written(t, neverFires)
	const disk = reserve + 100<<20
	c.space.free = func(string) (int64, error) {
		return disk - sizeOf(t, path) - sizeOf(t, path+"-wal"), nil
	}
	random := rand.New(rand.NewPCG(1, 2))
	for refused := false; !refused; {
		err := insert(t, w, `INSERT INTO t VALUES ($1)`, make([]byte, random.IntN(reserve/2)))
		if refused = err != nil; refused {
			require.ErrorIs(t, err, syscall.ENOSPC)
		}
		free, err := c.space.free("")
		require.NoError(t, err)
		require.GreaterOrEqual(t, free, sizeOf(t, path+"-wal"))
	}
	require.Greater(t, sizeOf(t, path), int64(10<<20), "the store has used the disk")
}
