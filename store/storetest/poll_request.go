// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// requestPoll requests a poll of the project's repository.
func (w *world) requestPoll() { w.NoError(w.s.RequestPolls(w.ctx, []uuid.UUID{w.project.ID})) }

// pollRequests returns the requested polls.
func (w *world) pollRequests() []store.PollRequest {
	looks, err := w.s.ListPollRequests(w.ctx, uuid.Nil, 10)
	w.NoError(err)
	return looks
}

// lookedFor reports for existing projects whether a poll is requested.
func (w *world) lookedFor(projects ...uuid.UUID) map[uuid.UUID]bool {
	asked, err := w.s.HavePollRequests(w.ctx, projects)
	w.NoError(err)
	return asked
}

var pollRequestPromises = []promise{
	{"a requested poll stays until it is taken", func(w *world) {
		w.Empty(w.pollRequests())
		w.Equal(map[uuid.UUID]bool{w.project.ID: false}, w.lookedFor(w.project.ID))
		for range 2 {
			w.requestPoll()
			w.Equal([]store.PollRequest{{ProjectID: w.project.ID, Namespace: w.project.Ref.Namespace}}, w.pollRequests())
			w.Equal(map[uuid.UUID]bool{w.project.ID: true}, w.lookedFor(w.project.ID))
			w.NoError(w.s.DeletePollRequest(w.ctx, w.project.ID))
			w.Empty(w.pollRequests())
		}
		w.NoError(w.s.DeletePollRequest(w.ctx, w.project.ID), "an unrequested one is taken too")
	}},
	{"concurrent and repeated requests are one row", func(w *world) {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 5 {
					if err := w.s.RequestPolls(w.ctx, []uuid.UUID{w.project.ID, w.project.ID}); err != nil {
						w.t.Error(err)
					}
				}
			})
		}
		group.Wait()
		w.Len(w.queryTexts(`SELECT CAST(project_id AS text) FROM looks WHERE project_id = $1`), 1)
	}},
	{"an unknown project is ignored", func(w *world) {
		strange := uuid.New()
		w.NoError(w.s.RequestPolls(w.ctx, []uuid.UUID{strange, w.project.ID}))
		w.Equal(map[uuid.UUID]bool{w.project.ID: true}, w.lookedFor(strange, w.project.ID))
		w.Len(w.pollRequests(), 1)
		w.Empty(w.lookedFor())
		w.NoError(w.s.RequestPolls(w.ctx, nil))
		w.Error(w.s.RequestPolls(w.ctx, make([]uuid.UUID, store.MaxPollRequests+1)))
		w.Error(errorOf(w.s.HavePollRequests(w.ctx, make([]uuid.UUID, store.MaxPollRequests+1))))
	}},
	{"project IDs are read by page, in order", func(w *world) {
		gone := w.twinProject().project
		want := []uuid.UUID{w.project.ID, w.twinProject().project.ID, w.twinProject().project.ID}
		w.NoError(w.s.Remove(w.ctx, gone.ID, gone.Ref))
		var got []uuid.UUID
		for after := uuid.Nil; ; after = got[len(got)-1] {
			page, err := w.s.ProjectIDs(w.ctx, after, 2)
			w.NoError(err)
			w.LessOrEqual(len(page), 2)
			if got = append(got, page...); len(page) < 2 {
				break
			}
		}
		slices.SortFunc(want, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		w.Equal(want, got)
	}},
	{"a request is deleted with its project", func(w *world) {
		other := w.twinProject()
		w.requestPoll()
		other.requestPoll()
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.project.Ref))
		w.Equal(map[uuid.UUID]bool{other.project.ID: true}, w.lookedFor(w.project.ID, other.project.ID))
		w.Len(w.pollRequests(), 1)
		w.Empty(w.queryTexts(`SELECT CAST(project_id AS text) FROM looks WHERE project_id = $1`))
	}},
	{"requests are read by page", func(w *world) {
		var all []uuid.UUID
		for range 5 {
			all = append(all, w.twinProject().project.ID)
		}
		w.NoError(w.s.RequestPolls(w.ctx, all))
		slices.SortFunc(all, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		var seen []uuid.UUID
		for after := uuid.Nil; ; {
			page, err := w.s.ListPollRequests(w.ctx, after, 2)
			w.NoError(err)
			for _, look := range page {
				seen = append(seen, look.ProjectID)
			}
			if len(page) < 2 {
				break
			}
			after = page[1].ProjectID
		}
		w.Equal(all, seen)
	}},
	{"only a new request sends a hint, after its commit", func(w *world) {
		w.awaitHint(store.TopicLook, w.project.ID, w.requestPoll)
		hints, stop := w.s.Subscribe(store.TopicLook)
		defer stop()
		w.requestPoll()
		other := w.twinProject()
		other.awaitHint(store.TopicLook, other.project.ID, other.requestPoll)
		for hint := range hints {
			w.NotEqual(w.project.ID, hint.Key.ProjectID, "it was requested already")
			if hint.Key.ProjectID == other.project.ID {
				break
			}
		}
	}},
}
