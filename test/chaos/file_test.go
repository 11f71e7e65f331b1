// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // a driver of database/sql

	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

// records gives the test access to a store's database.
type records interface {
	// open opens the database. The caller closes it.
	open() (*sql.DB, error)
	// alone returns once no other client uses the database.
	alone(ctx context.Context, conn *sql.Conn) error
}

// ask runs a query of one row.
func ask(ctx context.Context, of records, query string, into ...any) error {
	db, err := of.open()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // the connection has written nothing
	return db.QueryRowContext(ctx, query).Scan(into...)
}

// file is the embedded store of one scene.
type file struct{ path string }

// newFile creates the store's folder on a disk with the given number of bytes, or on the machine's disk if the number is 0.
func newFile(t *testing.T, disk int64) *file {
	t.Helper()
	base, err := reap.Dir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "sqlite-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	if disk > 0 {
		mount(t, data, disk)
	}
	return &file{path: filepath.Join(data, "store.db")}
}

// open implements records. It opens the file read-only, because only one process may write at a time.
func (f *file) open() (*sql.DB, error) { return openFile(f.path, "ro") }

func openFile(path, mode string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?mode="+mode+"&_pragma=busy_timeout(10000)&_pragma=temp_store(MEMORY)")
}

// alone implements records: with its process all that is at it has ended.
func (f *file) alone(context.Context, *sql.Conn) error { return nil }
