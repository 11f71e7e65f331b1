// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/agentplatform/agentplatform/bundle"
)

// settleTime is how long nothing changes before a change is reported: an editor writes a file in several steps, and a checkout
// writes many files.
const settleTime = 200 * time.Millisecond

// watchFolder reports changes of the files of a project in a folder, until ctx ends.
func watchFolder(ctx context.Context, dir string) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	if err := addFolders(w, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watching %s: %w", dir, err), w.Close())
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		defer w.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-w.Errors: // Events were lost, so anything can have changed.
				if !open {
					return
				}
			case event, open := <-w.Events:
				if !open {
					return
				}
				if event.Has(fsnotify.Create) {
					_ = addFolders(w, dir) // A folder that is already deleted does not matter.
				}
			}
			select {
			case seen <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return settleChanges(ctx, seen), nil
}

// addFolders watches the folder of a project, and all folders of the layout in it.
func addFolders(w *fsnotify.Watcher, dir string) error {
	if err := w.Add(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // It was deleted meanwhile.
		case err != nil:
			return err
		case !entry.IsDir() || path == dir:
			return nil
		case filepath.Dir(path) == filepath.Clean(dir) && !bundle.IsLayoutFolder(entry.Name()):
			return fs.SkipDir
		}
		return w.Add(path)
	})
}

// settleChanges passes on a change when nothing more changes for settleTime. Changes that the receiver has not read yet become one.
func settleChanges(ctx context.Context, seen <-chan struct{}) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		var calm <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-seen:
				if !open {
					return
				}
				calm = time.After(settleTime)
			case <-calm:
				calm = nil
				select {
				case out <- struct{}{}:
				default: // The receiver will check everything.
				}
			}
		}
	}()
	return out
}
