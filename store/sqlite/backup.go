// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// headerSize is the size of the header of a database file in bytes. pageSizeAt and pageCountAt
	// are the offsets of two numbers in it.
	headerSize  = 100
	pageSizeAt  = 16
	pageCountAt = 28
	// magic is the beginning of a database file.
	magic = "SQLite format 3\x00"
)

// Progress is called during a copy. done is the number of copied bytes.
type Progress func(done, all int64)

// Backup writes a copy of a database to out, page by page, while other processes write to the
// database. The copy is a snapshot from after the start of the call. It blocks no writer, because
// it is one reader. While it runs, the write-ahead log cannot restart, so the log grows with all
// writes. Unlike VACUUM INTO, it needs no space beside the database, and no memory for indexes.
// Unlike the backup API, which restarts with each write of another process, it always ends.
func Backup(ctx context.Context, path string, out io.Writer, progress Progress) (err error) {
	path = databaseFile(path)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	db := openDatabase(path, "deferred", "ro")
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("beginning to read %s: %w", path, err)
	}
	defer tx.Rollback()
	if err := isStore(ctx, tx); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var size, count int64
	row := tx.QueryRowContext(ctx, `SELECT page_size, page_count FROM pragma_page_size, pragma_page_count`)
	if err := row.Scan(&size, &count); err != nil {
		return fmt.Errorf("counting the pages of %s: %w", path, err)
	}
	rows, err := tx.QueryContext(ctx, `SELECT pgno, data FROM sqlite_dbpage`)
	if err != nil {
		return fmt.Errorf("reading the pages of %s: %w", path, err)
	}
	defer rows.Close()
	var done int64
	for rows.Next() {
		var number int64
		var page sql.RawBytes
		if err := rows.Scan(&number, &page); err != nil {
			return fmt.Errorf("reading page %d of %s: %w", done+1, path, err)
		}
		if number != done+1 || int64(len(page)) != size {
			return fmt.Errorf("reading page %d of %s: it is page %d, of %d bytes", done+1, path, number, len(page))
		}
		if _, err := out.Write(page); err != nil {
			return fmt.Errorf("writing the copy: %w", err)
		}
		done++
		progress(done*size, count*size)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading the pages of %s: %w", path, err)
	}
	if done != count {
		return fmt.Errorf("reading the pages of %s: %d pages expected, %d read", path, count, done)
	}
	return nil
}

// isStore returns an error if a database is not a store.
func isStore(ctx context.Context, tx *sql.Tx) error {
	var tables int
	row := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_schema
		WHERE type = 'table' AND name IN ('schema_compat', 'goose_db_version')`)
	if err := row.Scan(&tables); err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	if tables != 2 {
		return errors.New("this is a database without the tables of a store")
	}
	return nil
}

// CopyTo writes a backup to a new file. Until the copy is complete and on disk, it has another
// name.
func CopyTo(file string, write func(out io.Writer) error) (err error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s exists already; name another file, or move this one away", file), err)
	}
	partial := file + ".partial"
	out, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the user names the file
	if err != nil {
		return fmt.Errorf("creating the copy: %w", err)
	}
	err = write(out)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	if err := os.Rename(partial, file); err != nil {
		return fmt.Errorf("naming the copy: %w", err)
	}
	return syncFolder(filepath.Dir(file))
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path) //nolint:gosec // the folder of a file that the user names
	if err != nil {
		return fmt.Errorf("opening the folder of the copy: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Restore creates the database at a path from a backup, which it checks first. If replace is set,
// an existing database is kept under the returned name. Otherwise Restore returns an error. A
// database that a process has open is never replaced.
func Restore(ctx context.Context, path string, in io.Reader, replace bool, now time.Time) (kept string, err error) {
	path = databaseFile(path)
	present, err := checkReplaceable(ctx, path, replace)
	if err != nil {
		return "", err
	}
	copied := path + ".restored"
	defer func() {
		if err != nil {
			err = errors.Join(err, removeFiles(copied, copied+"-wal", copied+"-shm"))
		}
	}()
	if err := removeFiles(copied, copied+"-wal", copied+"-shm"); err != nil {
		return "", err
	}
	err = CopyTo(copied, func(out io.Writer) error {
		_, err := io.Copy(out, in)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the backup: %w", err)
	}
	if err := verifyStore(ctx, copied); err != nil {
		return "", fmt.Errorf("checking the backup: %w", err)
	}
	if present {
		kept = path + "." + now.UTC().Format("20060102T150405Z")
		if err := os.Rename(path, kept); err != nil {
			return "", fmt.Errorf("keeping the existing store: %w", err)
		}
	}
	if err := removeFiles(path+"-wal", path+"-shm"); err != nil { // empty files of the previous store
		return kept, err
	}
	if err := os.Rename(copied, path); err != nil {
		return kept, fmt.Errorf("naming the store: %w", err)
	}
	return kept, syncFolder(filepath.Dir(path))
}

// checkReplaceable reports whether there is a database at a path. It returns an error if the database must
// not be replaced, or is open: its log is then not empty, and would become part of the new
// database.
func checkReplaceable(ctx context.Context, path string, replace bool) (present bool, err error) {
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		if left, err := os.Stat(path + "-wal"); err == nil && left.Size() > 0 {
			return false, fmt.Errorf("%s-wal belongs to a store whose file is missing; move it away first", path)
		}
		return false, removeFiles(path+"-wal", path+"-shm")
	case err != nil:
		return false, fmt.Errorf("checking for an existing store: %w", err)
	case !replace:
		return false, fmt.Errorf("%s exists already; stop its process and use --replace, which keeps it under another name", path)
	}
	db := openAlone(path)
	defer func() { err = errors.Join(err, db.Close()) }()
	var tables int
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_schema`).Scan(&tables); err != nil {
		return false, fmt.Errorf("%s is in use or damaged; stop the platform first, and move damaged files away: %w", path, err)
	}
	return true, nil
}

// verifyStore returns an error if a file is not a complete store.
func verifyStore(ctx context.Context, path string) (err error) {
	if err := isWhole(path); err != nil {
		return err
	}
	db := openAlone(path)
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	defer tx.Rollback()
	if err := isStore(ctx, tx); err != nil {
		return err
	}
	var problem string
	if err := tx.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&problem); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	if problem != "ok" {
		return errors.New("it is damaged: " + problem)
	}
	return nil
}

// isWhole returns an error if a file does not have as many pages as its header says, for example
// after an interrupted copy.
func isWhole(path string) error {
	file, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(file, header); err != nil || !bytes.HasPrefix(header, []byte(magic)) {
		return errors.New("this is not a SQLite database")
	}
	size := int64(binary.BigEndian.Uint16(header[pageSizeAt:]))
	if size == 1 {
		size = 65536
	}
	if want := size * int64(binary.BigEndian.Uint32(header[pageCountAt:])); info.Size() != want {
		return fmt.Errorf("it has %d bytes instead of %d: it is incomplete, or not the output of `agentctl store backup`", info.Size(), want)
	}
	return nil
}

// removeFiles deletes files, if they exist.
func removeFiles(paths ...string) (err error) {
	for _, path := range paths {
		if gone := os.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
