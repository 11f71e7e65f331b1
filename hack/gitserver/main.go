// SPDX-License-Identifier: Apache-2.0

// Command gitserver serves Git repositories over HTTP. One repository contains a folder's files, and the demo clones it from
// inside the cluster. Clients create further repositories by a push or a commit. The server keeps them in memory until it ends.
// It is not for production: every client that reaches it may read, push and commit.
//
//	GET  /<name>.git/info/refs?service=…   Git's smart protocol; a name without a push or a
//	POST /<name>.git/git-upload-pack       commit returns the folder's repository
//	POST /<name>.git/git-receive-pack
//	POST /<name>.git/commit   {"message": "…", "files": {"agents/a.yaml": "…"}} returns the hash
//	                          of the commit; a null removes the file. A new repository
//	                          begins with the folder's files
//	POST /received/<any>   a destination for the results of the examples; GET /received lists
//	                       the requests, DELETE removes them
//	GET  /orders/<number>[/payments]  an order of the shop in docs/first-agent.md, or its
//	                       payments: 4711 and 4712
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-billy/v5/util"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

const branch = plumbing.ReferenceName("refs/heads/main")

// repository is a Git repository in memory. The mutex separates commits from fetches, because go-git's memory storage does not
// support both at once.
type repository struct {
	mutex sync.Mutex
	repo  *git.Repository
	work  *git.Worktree
	store *memory.Storage
}

func main() {
	addr := flag.String("addr", ":8080", "address to listen on")
	source := flag.String("source", "/source", "folder whose files are the first commit")
	flag.Parse()
	if err := serveRepositories(*addr, *source); err != nil {
		slog.Error("serving the repository", "error", err)
		os.Exit(1)
	}
}

func serveRepositories(addr, source string) error {
	files, err := readFolder(source)
	if err != nil {
		return fmt.Errorf("reading %s: %w", source, err)
	}
	repos, err := newRepositories(files)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	sent := &destination{}
	routes.Handle("/", repos)
	routes.Handle("/received", sent)
	routes.Handle("/received/", sent)
	serveOrders(routes)
	srv := &http.Server{Addr: addr, Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	slog.Info("serving the repository", "addr", addr, "files", len(files))
	return srv.ListenAndServe()
}

func newRepository() (*repository, error) {
	store, tree := memory.NewStorage(), memfs.New()
	repo, err := git.InitWithOptions(store, tree, git.InitOptions{DefaultBranch: branch})
	if err != nil {
		return nil, fmt.Errorf("making a repository: %w", err)
	}
	work, err := repo.Worktree()
	if err != nil {
		return nil, fmt.Errorf("opening the work tree: %w", err)
	}
	return &repository{repo: repo, work: work, store: store}, nil
}

// readFolder reads all regular files below root. It skips folders that begin with two dots, because the kubelet uses them to
// switch ConfigMaps. A "__" in a name stands for a slash, because keys of ConfigMaps cannot contain slashes.
func readFolder(root string) (map[string]*string, error) {
	files := map[string]*string{}
	return files, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.Name(), "..") && path != root {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		text := string(content)
		files[strings.ReplaceAll(filepath.ToSlash(name), "__", "/")] = &text
		return err
	})
}

// commitFiles writes files to the work tree and commits them; nil removes a file.
func (r *repository) commitFiles(message string, files map[string]*string) (string, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for name, content := range files {
		if content == nil {
			if _, err := r.work.Remove(name); err != nil && !errors.Is(err, index.ErrEntryNotFound) {
				return "", fmt.Errorf("removing %s: %w", name, err)
			}
			continue
		}
		if err := util.WriteFile(r.work.Filesystem, name, []byte(*content), 0o644); err != nil {
			return "", fmt.Errorf("writing %s: %w", name, err)
		}
		if _, err := r.work.Add(name); err != nil {
			return "", fmt.Errorf("adding %s: %w", name, err)
		}
	}
	author := &object.Signature{Name: "Agent Platform", Email: "demo@agentplatform.dev", When: time.Now()}
	hash, err := r.work.Commit(message, &git.CommitOptions{Author: author, AllowEmptyCommits: true})
	if err != nil {
		return "", fmt.Errorf("committing: %w", err)
	}
	return hash.String(), nil
}
