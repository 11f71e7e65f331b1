// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

const (
	// sessionTTL is how long a test session lasts without a renewal, sessionRenewal how often it is renewed.
	sessionTTL, sessionRenewal = 2 * time.Minute, 30 * time.Second
	// sessionEndTimeout bounds ending the session at the end of the command.
	sessionEndTimeout = 10 * time.Second
	// minUploadPause and maxUploadPause bound the pause before a failed upload is repeated. Each pause is twice as long as the
	// one before.
	minUploadPause, maxUploadPause = 2 * time.Second, time.Minute
)

// devOptions are the flags of `dev`.
type devOptions struct {
	deployOptions

	dir   string
	force bool
	// watch reports changes in the folder until ctx ends. It is watchFolder, except in tests.
	watch func(ctx context.Context, dir string) (<-chan struct{}, error)
}

func newDevCommand() *cobra.Command {
	o := &devOptions{watch: watchFolder}
	cmd := o.newCommand(&cobra.Command{
		Use:   "dev [FOLDER]",
		Short: "Deploy a folder to a test environment, and again whenever it changes",
		Long: `Deploy a folder of this machine to a test environment, and again whenever a file changes. The
command first checks the files on this machine. If there are problems it shows each with its
file, line and column, and uploads nothing. A change during a build replaces that build. A
failed upload is repeated.

The command holds a test session of the environment, so that no other user tests in it or
deletes it meanwhile. Ctrl-C ends the session; the live deployment stays live.`,
		Example: "  agentctl dev --environment tests",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		o.dir = folderArgument(args)
		return o.watchFolder(ctx)
	})
	flags := cmd.Flags()
	flags.StringVar(&o.environment, "environment", "", "slug or ID of the environment; default: the default environment")
	flags.BoolVar(&o.skipTests, "skip-tests", false, "do not run the tests of the folder")
	flags.BoolVar(&o.force, "force", false, "deploy to an environment that is not for tests, where real events arrive")
	return cmd
}

func (o *devOptions) watchFolder(ctx context.Context) error {
	e, err := o.api.findEnvironment(ctx, "--environment", o.environment)
	if err != nil {
		return err
	}
	isTest := e.Kind == restclient.EnvironmentKindTest
	if !isTest && !o.force {
		return fmt.Errorf("environment %s is not for tests (its kind is %s): each saved change would go live where real events arrive; name an environment of kind test, or give --force", e.Slug, e.Kind)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if isTest {
		end, err := o.holdSession(ctx, e, stop)
		if err != nil {
			return err
		}
		defer end()
	}
	changes, err := o.watch(ctx, o.dir)
	if err != nil {
		return err
	}
	l := &devLoop{devOptions: o, target: e, messages: &syncWriter{w: o.messages}}
	l.deployChanges(ctx, changes)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil // The user ended the command.
}

// holdSession starts the environment's test session and renews it until end is called. A lost session ends the command.
func (o *devOptions) holdSession(ctx context.Context, e restclient.Environment, lost context.CancelCauseFunc) (end func(), err error) {
	holder := sessionHolder()
	renew := func(ctx context.Context) error {
		_, err := o.api.HoldTestSession(ctx, e.ID, nil, restclient.TestSessionRequest{Holder: holder, TTLSeconds: new(int64(sessionTTL / time.Second))})
		return err
	}
	if err := renew(ctx); err != nil {
		return nil, fmt.Errorf("starting a test session in %s: %w", e.Slug, err)
	}
	renewing, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for o.api.Wait(renewing, sessionRenewal) == nil {
			if err := renew(renewing); err != nil && renewing.Err() == nil {
				lost(fmt.Errorf("the test session in %s is lost: %w", e.Slug, err))
				return
			}
		}
	})
	return func() {
		stop()
		done.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionEndTimeout)
		defer cancel()
		if _, err := o.api.EndTestSession(ctx, e.ID, &restclient.EndTestSessionParams{Holder: holder}); err != nil {
			fmt.Fprintf(o.messages, "ending the test session in %s failed, so it expires within %s: %s\n", e.Slug, sessionTTL, printableLines(err.Error()))
		}
	}, nil
}

// sessionHolder names the holder of the session for other users. Each process is a holder of its own.
func sessionHolder() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return shorten(fmt.Sprintf("%s@%s (%d)", name, host, os.Getpid()), 128)
}

// devLoop deploys a folder after each change.
type devLoop struct {
	*devOptions
	target   restclient.Environment
	messages io.Writer
	// lastCheck is the digest of the last checked content, or its problems. lastWarnings are the warnings about it.
	lastCheck, lastWarnings string
}

// deployChanges deploys the folder now and after each change, until ctx ends.
func (l *devLoop) deployChanges(ctx context.Context, changes <-chan struct{}) {
	end := func() {}
	defer func() { end() }()
	for ctx.Err() == nil {
		if p, changed := l.checkFolder(); changed {
			end() // The platform ends the previous build too.
			end = l.startDeploy(ctx, p)
		}
		select {
		case <-ctx.Done():
		case _, open := <-changes:
			if !open {
				return
			}
		}
	}
}

// checkFolder checks and packs the folder. It reports whether the content is valid and has changed.
func (l *devLoop) checkFolder() (p packedFolder, changed bool) {
	if warnings := findMisnamed(l.dir); warnings.Error() != l.lastWarnings {
		l.lastWarnings = warnings.Error()
		printWarnings(l.messages, l.dir, warnings)
	}
	files, err := readFolder(l.dir)
	if err == nil {
		_, err = bundle.Parse(files)
	}
	if err == nil {
		p, err = packFolder(files)
	}
	check := p.digest
	if err != nil {
		check = err.Error()
	}
	if check == l.lastCheck {
		return p, false
	}
	if l.lastCheck = check; err != nil {
		fmt.Fprintf(l.messages, "%s\nnothing is uploaded until this is fixed\n", printableLines(err.Error()))
	}
	return p, err == nil
}

// startDeploy deploys in the background until end is called.
func (l *devLoop) startDeploy(ctx context.Context, p packedFolder) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := l.deployFolder(ctx, p); err != nil && ctx.Err() == nil {
			fmt.Fprintf(l.messages, "%s\n", printableLines(err.Error()))
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// deployFolder deploys a folder, reports the outcome, and prints the URLs at which events arrive.
func (l *devLoop) deployFolder(ctx context.Context, p packedFolder) error {
	d, err := l.uploadFolder(ctx, p)
	if err != nil {
		return fmt.Errorf("deploying to %s: %w", l.target.Slug, err)
	}
	if d, err = followToEnd(ctx, l.api, d, l.messages, l.messages); err != nil {
		return err
	}
	if err := reportOutcome(d, l.target.Slug, l.messages); err != nil {
		return err
	}
	return l.printWebhooks(ctx)
}

// uploadFolder uploads a folder until the platform has accepted or rejected it, or ctx ends. It repeats transient failures,
// because no edit of the folder fixes them.
func (l *devLoop) uploadFolder(ctx context.Context, p packedFolder) (deployment, error) {
	for after := minUploadPause; ; after = min(2*after, maxUploadPause) {
		d, err := l.api.uploadFolder(ctx, l.target, p, l.skipTests, l.messages)
		if err == nil || ctx.Err() != nil || !restclient.IsTransient(err) {
			return d, err
		}
		fmt.Fprintf(l.messages, "%s\nuploading again in %s\n", printableLines(err.Error()), after)
		if err := l.api.Wait(ctx, after); err != nil {
			return d, err
		}
	}
}

// printWebhooks prints the URLs of the environment's connectors.
func (l *devLoop) printWebhooks(ctx context.Context) error {
	list, err := l.api.listConnectors(ctx, l.target)
	if err != nil {
		return fmt.Errorf("listing the connectors of %s: %w", l.target.Slug, err)
	}
	for _, c := range list {
		if url := restclient.ValueOf(c.Value.WebhookURL); url != "" && !c.Value.Retired {
			fmt.Fprintf(l.messages, "  %s (%s) %s\n", printable(c.Value.Name), c.Value.Mode, printable(url))
		}
	}
	return nil
}

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
