// SPDX-License-Identifier: Apache-2.0

package gitfollower

import "sync"

// Head is the head of a branch.
type Head struct {
	// Seen is the branch's newest commit.
	Seen string
	// Commit is the commit to deploy: Seen, or while Unseen is set, the last commit with a known Tree.
	// It is "" if there is none.
	Commit string
	// Tree is the hash of the files below git.path of the Project. Equal hashes mean equal files. It is
	// "" if there is no path, or if the server does not support the query.
	Tree string
	// Path is the git.path of Tree.
	Path string
	// Problem says why no commit is known, or is "".
	Problem string
	// TreeProblem says why Tree is not known for Seen yet. It is "" if Tree is known or not needed.
	TreeProblem string
	// Cause is the cause of Problem or Unseen without text of the server, or "". Problem and Unseen change
	// only with Cause. Otherwise a server could change the status of objects with each poll.
	Cause string
}

// Heads has the latest known heads of followed branches. Its methods are safe for concurrent use.
type Heads struct {
	mu sync.Mutex
	// byNamespace has the heads by namespace and branch.
	byNamespace map[string]map[string]Head
}

// NewHeads returns Heads without branches.
func NewHeads() *Heads {
	return &Heads{byNamespace: map[string]map[string]Head{}}
}

// getHead returns the head of a branch of a project's repository. ok is false before the first poll.
func (h *Heads) getHead(namespace, branch string) (head Head, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	head, ok = h.byNamespace[namespace][branch]
	return head, ok
}

// replaceHeads replaces the heads of a project's repository and returns the branches that moved. nil removes the
// repository.
func (h *Heads) replaceHeads(namespace string, seen map[string]Head) (changed map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.byNamespace[namespace]
	changed = map[string]bool{}
	for branch, head := range seen {
		known, ok := before[branch]
		if ok && head.Cause != "" && known.Cause == head.Cause && known.Path == head.Path {
			head.Problem, head.TreeProblem = known.Problem, known.TreeProblem
			seen[branch] = head
		}
		if !ok || known != head {
			changed[branch] = true
		}
	}
	if h.byNamespace[namespace] = seen; len(seen) == 0 {
		delete(h.byNamespace, namespace)
	}
	return changed
}
