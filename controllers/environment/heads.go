// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Head is where a branch stands.
type Head struct {
	// Seen is the branch's newest commit.
	Seen string
	// Commit is the one that counts: Seen, or while Unseen the last of which Tree is known,
	// "" where there is none.
	Commit string
	// Tree names what git.path of the Project holds there: the same name is the same
	// files. It is "" where there is no path, or the server does not tell.
	Tree string
	// Path is the git.path that Tree is of.
	Path string
	// Problem says why no commit is known; "" where one is.
	Problem string
	// Unseen says why it is not known yet what git.path holds at Seen; "" where it is, or
	// need not be.
	Unseen string
}

// Heads are where the branches stand that environments follow, as they were last
// seen. Its methods are safe for concurrent use.
type Heads struct {
	mu sync.Mutex
	// of is by namespace and branch.
	of map[string]map[string]Head
	// changed names the environments whose branch stands elsewhere now.
	changed chan event.GenericEvent
}

// NewHeads knows of no branch.
func NewHeads() *Heads {
	return &Heads{of: map[string]map[string]Head{}, changed: make(chan event.GenericEvent, waitingHeads)}
}

// waitingHeads is how many environments may wait to be woken before whoever wakes
// them waits.
const waitingHeads = 100

// get is where a branch of a project's repository stands; ok is false where nobody
// has looked yet.
func (h *Heads) get(namespace, branch string) (head Head, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	head, ok = h.of[namespace][branch]
	return head, ok
}

// put takes what was seen of a project's repository in place of all that was known,
// and says which branches stand elsewhere now. nil forgets the repository.
func (h *Heads) put(namespace string, seen map[string]Head) (changed map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.of[namespace]
	changed = map[string]bool{}
	for branch, head := range seen {
		if known, ok := before[branch]; !ok || known != head {
			changed[branch] = true
		}
	}
	if h.of[namespace] = seen; len(seen) == 0 {
		delete(h.of, namespace)
	}
	return changed
}
