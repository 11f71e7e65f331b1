// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/snapshot"
)

const (
	killTimeout = 20 * time.Second
	pollEvery   = 50 * time.Millisecond
)

// KillAll kills every process of the cluster, including the processes of pods, until none is left. The caller has already
// stopped the processes that start new ones.
func KillAll(ctx context.Context, dir layout.Dir) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		left := snapshot.Processes(dir)
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			// The process may have exited already. The code below reports a process that survives.
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("killing %d processes of the cluster, e.g. %d %v: %w", len(left), left[0].PID, left[0].Args, ctx.Err())
		case <-ticker.C:
		}
	}
}

// UnmountAll unmounts everything below the state folder.
func UnmountAll(ctx context.Context, dir layout.Dir) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(mounts) { // newest first, because a mount may be on top of an older one
		if _, err := runProgram(ctx, "", "umount", point); err == nil {
			continue
		}
		if _, err := runProgram(ctx, "", "umount", "--lazy", point); err != nil {
			return err
		}
	}
	return nil
}

func mountsBelow(dir layout.Dir) ([]string, error) {
	mounts, err := snapshot.Mounts()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(mounts, func(point string) bool {
		return !strings.HasPrefix(point, string(dir)+"/")
	}), nil
}

// RemoveCgroups removes the control groups that are there now and were not
// before, as far as they are of pods.
func RemoveCgroups(before snapshot.Snapshot) error {
	var errs []error
	for _, group := range slices.Backward(snapshot.Cgroups()) { // children first
		if !strings.Contains(group, "/kubepods") || slices.Contains(before.Cgroups, group) {
			continue
		}
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing a control group: %w", err))
		}
	}
	return errors.Join(errs...)
}

// RemoveFolders removes the places outside the state folder that appeared with the cluster. A new item in a place that existed
// before stays, because its owner is unknown.
func RemoveFolders(before snapshot.Snapshot, left []snapshot.Leftover) error {
	var errs []error
	for _, l := range left {
		inOlder := func(folder string) bool { return strings.HasPrefix(l.Name, folder+"/") }
		switch {
		case l.Kind != "folder" || slices.ContainsFunc(before.Folders, inOlder):
		case l.Mine:
			errs = append(errs, os.RemoveAll(l.Name))
		default:
			_ = os.Remove(l.Name) // succeeds only if the folder is empty, so other programs' files stay
		}
	}
	return errors.Join(errs...)
}

// RemoveState removes the state folder. It refuses while something is mounted
// below, for the content of a mount is not the cluster's to remove.
func RemoveState(dir layout.Dir) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("removing %s: %s is still mounted", dir, mounts[0])
	}
	if _, err := os.Stat(dir.Engine()); err != nil {
		return fmt.Errorf("removing %s: it is not a state folder: %w", filepath.Clean(string(dir)), err)
	}
	return os.RemoveAll(string(dir))
}
