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

// fetchAttempts limits the attempts to fetch from a server that cannot be reached or disconnects.
const fetchAttempts = 3

// FetchOptions select the source of a build.
type FetchOptions struct {
	// URL is https://, ssh:// or user@host:path, or http:// in allowed ranges.
	URL string
	// Branch is a branch or tag; "" means the repository's default branch.
	Branch string
	// Commit is a full hash; "" means the head of the branch.
	Commit string
	// Path is the folder of the project inside the repository; "" means its root.
	Path string
	// Credentials is a folder with the files of a Git Secret; "" without any.
	Credentials string
	// Dir is the output folder; it must exist.
	Dir string
	// Guard checks addresses; required.
	Guard *egress.Guard
	// Now is the clock; nil means time.Now. Pause waits before another attempt; nil uses real time.
	Now   func() time.Time
	Pause func(ctx context.Context, d time.Duration) error
}

// Fetch writes a commit's files and a Result to the folder. It returns nil even if the repository
// could not be fetched, because Pack reports that. It returns an error if the folder cannot be
// written.
func Fetch(ctx context.Context, opts FetchOptions) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Pause == nil {
		opts.Pause = pause.For
	}
	f := fetcher{FetchOptions: opts}
	f.result.Branch = opts.Branch
	if err := f.fetchAndExport(ctx); err != nil {
		var broken *os.PathError
		if errors.As(err, &broken) && strings.HasPrefix(broken.Path, opts.Dir) {
			return fmt.Errorf("writing to %s: %w", opts.Dir, err)
		}
		f.result.Error = gitremote.Clip(gitremote.Explain(opts.URL, opts.Credentials != "", err), 4000)
		f.result.addLine(opts.Now(), "%s", f.result.Error)
	}
	return writeResult(opts.Dir, f.result)
}

type fetcher struct {
	FetchOptions
	result  Result
	objects *gitremote.Objects // last received
}

func (f *fetcher) fetchAndExport(ctx context.Context) error {
	if f.Commit != "" && !plumbing.IsHash(f.Commit) {
		return gitremote.Remedy("commit %q is not a full hash of 40 hexadecimal digits", f.Commit)
	}
	r, err := gitremote.New(f.URL, gitremote.Folder(f.Credentials), f.Guard)
	if err != nil {
		return err
	}
	f.result.addLine(f.Now(), "fetching %s", r.Shown)
	if err := os.Mkdir(filepath.Join(f.Dir, gitFolder), 0o700); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	defer f.deleteObjects()
	var hash plumbing.Hash
	for attempt := 1; ; attempt++ {
		hash, err = f.fetchCommit(ctx, r)
		if err == nil || attempt == fetchAttempts || ctx.Err() != nil || !gitremote.Unreachable(err) && !gitremote.BrokeOff(err) {
			break
		}
		f.result.addLine(f.Now(), "trying again: %s", gitremote.Explain(f.URL, f.Credentials != "", err))
		if err := f.Pause(ctx, time.Duration(attempt)*2*time.Second); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if f.Commit == "" {
		if hash, err = resolveTag(f.objects, hash); err != nil {
			return err
		}
	}
	commit, err := commitOf(f.objects, hash)
	if err != nil {
		return err
	}
	f.describe(commit)
	return f.exportFiles(ctx, commit)
}

// deleteObjects deletes received data.
func (f *fetcher) deleteObjects() {
	if f.objects != nil {
		_ = f.objects.Close() // only read
		f.objects = nil
	}
	_ = os.RemoveAll(filepath.Join(f.Dir, gitFolder)) // the folder is deleted with the pod
}

// fetchCommit receives the wanted commit and returns its hash.
func (f *fetcher) fetchCommit(ctx context.Context, r *gitremote.Remote) (plumbing.Hash, error) {
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
			return want, fmt.Errorf("requesting a shallow fetch: %w", err)
		}
	}
	err = f.receive(ctx, s, single)
	if err == nil || gitremote.Advertised(refs, want) || errors.As(err, new(gitremote.RemedyError)) {
		return want, err
	}
	// Some servers send single commits only at the heads of branches.
	return want, f.fetchAll(ctx, r, refs)
}

// fetchAll receives the history of all branches and tags.
func (f *fetcher) fetchAll(ctx context.Context, r *gitremote.Remote, refs *packp.AdvRefs) error {
	f.result.addLine(f.Now(), "the server does not send single commits; fetching the history")
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

// receive writes the server's data to a file, up to a limit.
func (f *fetcher) receive(ctx context.Context, s gitremote.Session, req *packp.UploadPackRequest) error {
	resp, err := s.Pack(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Close()
	if f.objects != nil {
		_ = f.objects.Close() // of an earlier attempt
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

// maxTags limits tags that point to tags.
const maxTags = 10

// resolveTag resolves an annotated tag to its commit, because servers do not have to send it. It returns
// a commit unchanged.
func resolveTag(from *gitremote.Objects, hash plumbing.Hash) (plumbing.Hash, error) {
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
	return hash, gitremote.Remedy("the tag points to more than %d other tags; tag a commit", maxTags)
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
	f.result.addLine(f.Now(), "commit %s by %s: %s", f.result.Commit, f.result.Author, subject)
}
