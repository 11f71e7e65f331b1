// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
)

const (
	// sessionTime is how long a test session lasts that is not renewed, and sessionEvery how
	// often it is.
	sessionTime, sessionEvery = 2 * time.Minute, 30 * time.Second
	// sessionEnd bounds ending the session when the command ends.
	sessionEnd = 10 * time.Second
	// devPause and devLongest are the least and the most that is waited before an upload is
	// tried again that failed on its way: each pause is twice the one before.
	devPause, devLongest = 2 * time.Second, time.Minute
)

// devOptions are the flags of `dev`.
type devOptions struct {
	deployOptions

	dir   string
	force bool
	// changes tells of changes in the folder until ctx ends: watch, but in tests.
	changes func(ctx context.Context, dir string) (<-chan struct{}, error)
}

func newDevCommand() *cobra.Command {
	o := &devOptions{changes: watch}
	cmd := o.command(&cobra.Command{
		Use:   "dev [DIR]",
		Short: "Deploy a folder to a test environment, and again whenever it changes",
		Long: `Deploy what is in a folder of this machine to an environment for tests, and again
whenever something in it changes. The files are checked first, here: of what is wrong with
them every problem is shown with its file, line and column, and nothing is uploaded. A
change while a build is under way takes that build's place. An upload that fails on its
way is tried again.

The environment is held by a test session while the command runs, so that nobody else
tests or deletes it meanwhile. Ctrl-C ends the session; what is live stays so.`,
		Example: "  agentctl dev --environment tests",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		if o.dir = "."; len(args) == 1 {
			o.dir = args[0]
		}
		return o.dev(ctx)
	})
	flags := cmd.Flags()
	flags.StringVar(&o.wanted, "environment", "", "slug or id of the environment; without it the default one")
	flags.BoolVar(&o.skipTests, "skip-tests", false, "do not run the tests of the folder")
	flags.BoolVar(&o.force, "force", false, "also in an environment that is not for tests, where real events come in")
	return cmd
}

func (o *devOptions) dev(ctx context.Context) error {
	e, err := o.api.environment(ctx, o.wanted)
	if err != nil {
		return err
	}
	if e.Kind != "test" && !o.force {
		return fmt.Errorf("environment %s is not for tests (its kind is %s): whatever is saved would go live where real events come in; name one of kind test, or say --force", e.Slug, e.Kind)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if e.Kind == "test" {
		end, err := o.hold(ctx, e, stop)
		if err != nil {
			return err
		}
		defer end()
	}
	changes, err := o.changes(ctx, o.dir)
	if err != nil {
		return err
	}
	l := &devLoop{devOptions: o, environment: e, messages: &lines{w: o.messages}}
	l.run(ctx, changes)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil // as it was asked to
}

// hold begins the environment's test session, and renews it until end is called. A session
// that is lost ends the command.
func (o *devOptions) hold(ctx context.Context, e environment, lost context.CancelCauseFunc) (end func(), err error) {
	path, holder := "/environments/"+url.PathEscape(e.ID)+"/session", whoAmI()
	renew := func(ctx context.Context) error {
		var session struct{}
		body := map[string]any{"holder": holder, "ttl_seconds": int(sessionTime.Seconds())}
		return o.api.call(ctx, http.MethodPut, path, rand.Text(), body, &session)
	}
	if err := renew(ctx); err != nil {
		return nil, fmt.Errorf("beginning a test session in %s: %w", e.Slug, err)
	}
	renewing, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for o.api.wait(renewing, sessionEvery) == nil {
			if err := renew(renewing); err != nil && renewing.Err() == nil {
				lost(fmt.Errorf("the test session in %s is lost: %w", e.Slug, err))
				return
			}
		}
	})
	return func() {
		stop()
		done.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionEnd)
		defer cancel()
		var ok struct{}
		if err := o.api.call(ctx, http.MethodDelete, path+"?holder="+url.QueryEscape(holder), rand.Text(), nil, &ok); err != nil {
			fmt.Fprintf(o.messages, "the test session in %s ends by itself within %s: ending it failed: %v\n", e.Slug, sessionTime, err)
		}
	}, nil
}

// whoAmI is who holds the session, in words for others: another process of the same person
// is another one.
func whoAmI() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "somewhere"
	}
	return clip(fmt.Sprintf("%s@%s (%d)", name, host, os.Getpid()), 128)
}

// devLoop deploys a folder again and again.
type devLoop struct {
	*devOptions
	environment environment
	messages    io.Writer
	// last is the digest of what was looked at last, or what was wrong with it; warned is what was
	// warned of then.
	last, warned string
}

// run deploys what is there, and what is there after each change, until ctx ends.
func (l *devLoop) run(ctx context.Context, changes <-chan struct{}) {
	end := func() {}
	defer func() { end() }()
	for ctx.Err() == nil {
		if p, ok := l.look(); ok {
			end() // of the build before the platform does the same
			end = l.begin(ctx, p)
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

// look checks the folder; ok says that there is something else to deploy.
func (l *devLoop) look() (p packed, ok bool) {
	if warnings := misnamed(l.dir); warnings.Error() != l.warned {
		l.warned = warnings.Error()
		warn(l.messages, l.dir, warnings)
	}
	files, err := readFolder(l.dir)
	if err == nil {
		_, err = bundle.Parse(files)
	}
	if err == nil {
		p, err = packFolder(files)
	}
	now := p.digest
	if err != nil {
		now = err.Error()
	}
	if now == l.last {
		return p, false
	}
	if l.last = now; err != nil {
		fmt.Fprintf(l.messages, "%s\nnothing is uploaded until this is mended\n", printableLines(err.Error()))
	}
	return p, err == nil
}

// begin deploys beside what comes next, until it is ended.
func (l *devLoop) begin(ctx context.Context, p packed) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := l.deployed(ctx, p); err != nil && ctx.Err() == nil {
			fmt.Fprintf(l.messages, "%s\n", printableLines(err.Error()))
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// deployed deploys what was packed, and says what became of it and where events come in.
func (l *devLoop) deployed(ctx context.Context, p packed) error {
	d, err := l.sent(ctx, p)
	if err != nil {
		return fmt.Errorf("deploying to %s: %w", l.environment.Slug, err)
	}
	if d, err = ending(ctx, l.api, d, l.messages, l.messages); err != nil {
		return err
	}
	if err := told(d, l.environment.Slug, l.messages); err != nil {
		return err
	}
	return l.webhooks(ctx)
}

// sent uploads what was packed until the platform has taken or refused it, or something else
// is to be uploaded: of a failure on the way nobody edits the folder.
func (l *devLoop) sent(ctx context.Context, p packed) (deployment, error) {
	for after := devPause; ; after = min(2*after, devLongest) {
		d, err := l.api.upload(ctx, l.environment, p, l.skipTests, l.messages)
		if err == nil || ctx.Err() != nil || !passes(err) {
			return d, err
		}
		fmt.Fprintf(l.messages, "%s\nuploading again in %s\n", printableLines(err.Error()), after)
		if err := l.api.wait(ctx, after); err != nil {
			return d, err
		}
	}
}

// webhooks shows the URLs of the environment's connectors.
func (l *devLoop) webhooks(ctx context.Context) error {
	list, err := l.api.connectors(ctx, l.environment.ID)
	if err != nil {
		return fmt.Errorf("listing the connectors of %s: %w", l.environment.Slug, err)
	}
	for _, c := range list {
		if c.WebhookURL != "" && !c.Retired {
			fmt.Fprintf(l.messages, "  %s (%s) %s\n", printable(c.Name), c.Mode, printable(c.WebhookURL))
		}
	}
	return nil
}

// lines lets several write to one terminal.
type lines struct {
	mutex sync.Mutex
	w     io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.w.Write(p)
}
