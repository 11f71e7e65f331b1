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

// quiet is for how long nothing changes before a change is told of: an editor writes a file in
// several steps, and a checkout many files.
const quiet = 200 * time.Millisecond

// watch tells of changes of what agents are made of in a folder, until ctx ends.
func watch(ctx context.Context, dir string) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	if err := watchFolders(w, dir); err != nil {
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
			case _, open := <-w.Errors: // of events that were lost: whatever changed is found
				if !open {
					return
				}
			case event, open := <-w.Events:
				if !open {
					return
				}
				if event.Has(fsnotify.Create) {
					_ = watchFolders(w, dir) // one that is gone again is no longer of interest
				}
			}
			select {
			case seen <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return settled(ctx, seen), nil
}

// watchFolders watches a project's folder, and in it all folders of the layout.
func watchFolders(w *fsnotify.Watcher, dir string) error {
	if err := w.Add(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went meanwhile
		case err != nil:
			return err
		case !entry.IsDir() || path == dir:
			return nil
		case filepath.Dir(path) == filepath.Clean(dir) && !bundle.InLayout(entry.Name()):
			return fs.SkipDir
		}
		return w.Add(path)
	})
}

// settled passes on what is seen once nothing more was for a while. Of several that nobody
// takes there is one.
func settled(ctx context.Context, seen <-chan struct{}) <-chan struct{} {
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
				calm = time.After(quiet)
			case <-calm:
				calm = nil
				select {
				case out <- struct{}{}:
				default: // it will look at all of it
				}
			}
		}
	}()
	return out
}
