// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/pause"
)

// fetchAttempts is how often a server is tried that cannot be reached or breaks
// off.
const fetchAttempts = 3

// FetchOptions say what to fetch.
type FetchOptions struct {
	// URL is https://, ssh:// or user@host:path; http:// where the operator
	// allowed the range.
	URL string
	// Branch or tag; "" means the repository's default branch.
	Branch string
	// Commit is a full hash; "" means the head of the branch.
	Commit string
	// Path is the folder of the project inside the repository; "" means its root.
	Path string
	// Credentials is a folder with the files of a Git Secret; "" without any.
	Credentials string
	// Dir is the folder to write to; it must exist.
	Dir string
	// Guard decides which addresses may be reached; required.
	Guard *egress.Guard
	// Now is the clock; nil means time.Now. Pause waits before another attempt;
	// nil means real time.
	Now   func() time.Time
	Pause func(ctx context.Context, d time.Duration) error
}

// Fetch takes a commit's files and writes them and a Result to the folder. The
// error is nil also when the repository could not be fetched: Pack reports
// that. It is not nil when the folder cannot be written.
func Fetch(ctx context.Context, opts FetchOptions) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Pause == nil {
		opts.Pause = pause.For
	}
	f := fetcher{FetchOptions: opts}
	f.result.Branch = opts.Branch
	if err := f.run(ctx); err != nil {
		var broken *os.PathError
		if errors.As(err, &broken) && strings.HasPrefix(broken.Path, opts.Dir) {
			return fmt.Errorf("writing to %s: %w", opts.Dir, err)
		}
		f.result.Error = gitremote.Clip(gitremote.Explain(opts.URL, opts.Credentials != "", err), 4000)
		f.result.say(opts.Now(), "%s", f.result.Error)
	}
	return writeResult(opts.Dir, f.result)
}

type fetcher struct {
	FetchOptions
	result  Result
	objects *gitremote.Objects // received last
}

func (f *fetcher) run(ctx context.Context) error {
	if f.Commit != "" && !plumbing.IsHash(f.Commit) {
		return gitremote.Remedy("commit %q is not a full hash of 40 hexadecimal digits", f.Commit)
	}
	r, err := gitremote.New(f.URL, gitremote.Folder(f.Credentials), f.Guard)
	if err != nil {
		return err
	}
	f.result.say(f.Now(), "fetching %s", r.Shown)
	if err := os.Mkdir(filepath.Join(f.Dir, gitFolder), 0o700); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	defer f.forget()
	var hash plumbing.Hash
	for attempt := 1; ; attempt++ {
		hash, err = f.fetch(ctx, r)
		if err == nil || attempt == fetchAttempts || ctx.Err() != nil || !gitremote.Unreachable(err) && !gitremote.BrokeOff(err) {
			break
		}
		f.result.say(f.Now(), "trying again: %s", gitremote.Explain(f.URL, f.Credentials != "", err))
		if err := f.Pause(ctx, time.Duration(attempt)*2*time.Second); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if f.Commit == "" {
		if hash, err = peel(f.objects, hash); err != nil {
			return err
		}
	}
	commit, err := commitOf(f.objects, hash)
	if err != nil {
		return err
	}
	f.describe(commit)
	return f.export(ctx, commit)
}

// forget removes what was received.
func (f *fetcher) forget() {
	if f.objects != nil {
		_ = f.objects.Close() // only read
		f.objects = nil
	}
	_ = os.RemoveAll(filepath.Join(f.Dir, gitFolder)) // the folder goes with the pod
}

// fetch receives the wanted commit and returns its hash.
func (f *fetcher) fetch(ctx context.Context, r *gitremote.Remote) (plumbing.Hash, error) {
	s, err := r.Connect(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer s.Close()
	refs, err := s.Refs(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	head, branch, err := gitremote.Resolve(refs, f.Branch)
	if err != nil && f.Commit == "" {
		return plumbing.ZeroHash, err
	}
	f.result.Branch = branch
	want := head
	if f.Commit != "" {
		want = plumbing.NewHash(f.Commit)
	}
	single := gitremote.Request(refs, want)
	if refs.Capabilities.Supports(capability.Shallow) {
		single.Depth = packp.DepthCommits(1)
		if err := single.Capabilities.Set(capability.Shallow); err != nil {
			return want, fmt.Errorf("asking for a shallow fetch: %w", err)
		}
	}
	err = f.receive(ctx, s, single)
	if err == nil || gitremote.Advertised(refs, want) || errors.As(err, new(gitremote.RemedyError)) {
		return want, err
	}
	// Some servers give single commits only at the tips of branches.
	return want, f.fetchAll(ctx, r, refs)
}

// fetchAll takes the history of all branches and tags.
func (f *fetcher) fetchAll(ctx context.Context, r *gitremote.Remote, refs *packp.AdvRefs) error {
	f.result.say(f.Now(), "the server does not give single commits; fetching the history")
	s, err := r.Connect(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Refs(ctx); err != nil {
		return err
	}
	var tips []plumbing.Hash
	for name, hash := range refs.References {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") {
			tips = append(tips, hash)
		}
	}
	return f.receive(ctx, s, gitremote.Request(refs, tips...))
}

// receive takes what the server sends, bounded, into a file.
func (f *fetcher) receive(ctx context.Context, s gitremote.Session, req *packp.UploadPackRequest) error {
	resp, err := s.Pack(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Close()
	if f.objects != nil {
		_ = f.objects.Close() // of an attempt before
		f.objects = nil
	}
	file, err := os.Create(filepath.Join(f.Dir, gitFolder, "pack"))
	if err != nil {
		return fmt.Errorf("making a file for the objects: %w", err)
	}
	pack := &gitremote.Bounded{R: gitremote.Demultiplexed(req, resp), Left: gitremote.MaxPack, Over: gitremote.ErrPack}
	_, err = io.Copy(file, pack)
	if over := pack.Exceeded(); over != nil {
		err = over
	}
	if err == nil {
		f.objects, err = gitremote.OpenObjects(ctx, file, packBounds)
	}
	if err != nil {
		f.objects = nil
		return errors.Join(fmt.Errorf("receiving objects: %w", err), file.Close())
	}
	return nil
}

// maxTags is how many tags may stand for each other.
const maxTags = 10

// peel resolves an annotated tag to its commit: servers need not advertise that. A commit is its own.
func peel(from *gitremote.Objects, hash plumbing.Hash) (plumbing.Hash, error) {
	for range maxTags {
		tag, err := object.GetTag(from, hash)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return hash, nil
		}
		if err != nil {
			return hash, fmt.Errorf("reading tag %s: %w", hash, err)
		}
		hash = tag.Target
	}
	return hash, gitremote.Remedy("the tag stands for more than %d other tags; tag a commit", maxTags)
}

func commitOf(from *gitremote.Objects, hash plumbing.Hash) (*object.Commit, error) {
	commit, err := object.GetCommit(from, hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, gitremote.Remedy("the repository has no commit %s; push it or correct the hash", hash)
	}
	if err != nil {
		return nil, fmt.Errorf("reading commit %s: %w", hash, err)
	}
	return commit, nil
}

func (f *fetcher) describe(commit *object.Commit) {
	f.result.Commit = commit.Hash.String()
	f.result.Message = gitremote.Clip(commit.Message, maxCommitText)
	f.result.Author = gitremote.Clip(commit.Author.Name, maxCommitText)
	subject, _, _ := strings.Cut(f.result.Message, "\n")
	f.result.say(f.Now(), "commit %s by %s: %s", f.result.Commit, f.result.Author, subject)
}
