// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// limited returns a new environment of a project with a limit.
func (w *world) limited(name string, limit int) store.Environment {
	e := w.newEnvironment(name, origin.Add(time.Hour))
	e.Limit = limit
	return e
}

// requireLimitReached checks that an environment is not in effect because of the limit.
func (w *world) requireLimitReached(e store.Environment) {
	var reached *store.LimitReachedError
	w.ErrorAs(w.s.PutEnvironment(w.ctx, e), &reached)
	w.Equal(e.Limit, reached.Limit)
	w.False(reached.Stored)
	w.ErrorIs(errorOf(w.s.Environment(w.ctx, e.Key())), store.ErrNotFound)
}

var limitPromises = []promise{
	{"environments above the limit wait for a free position", func(w *world) {
		second, third, fourth := w.limited("second", 2), w.limited("third", 2), w.limited("fourth", 2)
		third.ObjectCreatedAt = origin.Add(-time.Hour) // older, but claimed later
		w.NoError(w.s.PutEnvironment(w.ctx, second))
		w.requireLimitReached(third)
		w.requireLimitReached(fourth)
		w.requireLimitReached(third)
		w.NoError(w.s.PutEnvironment(w.ctx, second), "an environment in effect stays in effect")

		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.requireLimitReached(fourth)
		w.NoError(w.s.PutEnvironment(w.ctx, third))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, second.Ref))
		w.NoError(w.s.PutEnvironment(w.ctx, fourth))
	}},
	{"a waiting environment can be deleted with its position", func(w *world) {
		second, third := w.limited("second", 1), w.limited("third", 2)
		w.requireLimitReached(second)
		w.requireLimitReached(third)
		w.Contains(w.listProjected(), store.ProjectedObject{Key: second.Key(), Ref: second.Ref}, "a sweep finds it")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, second.Ref))
		w.NoError(w.s.PutEnvironment(w.ctx, third))
	}},
	{"a waiting environment has no slug and is no default", func(w *world) {
		second := w.limited("second", 1)
		second.Slug = w.environment.Slug
		w.requireLimitReached(second)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.ErrorIs(errorOf(w.s.DefaultEnvironment(w.ctx, w.project.ID)), store.ErrNotFound)
		w.NoError(w.s.PutEnvironment(w.ctx, second))
		w.Equal(second.ID, w.defaultEnvironment(w.project.ID))
	}},
	{"a lowered limit leaves existing environments in effect", func(w *world) {
		second := w.limited("second", 2)
		w.NoError(w.s.PutEnvironment(w.ctx, second))
		lowered := second
		lowered.Limit, lowered.DisplayName = 1, "Another"
		var reached *store.LimitReachedError
		w.ErrorAs(w.s.PutEnvironment(w.ctx, lowered), &reached)
		w.True(reached.Stored)
		w.Equal(second.DisplayName, w.readEnvironment(second.Key()).DisplayName)
		w.NoError(w.s.PutEnvironment(w.ctx, second), "until it is raised")
	}},
	{"a re-created environment comes after waiting ones", func(w *world) {
		second := w.limited("second", 1)
		w.requireLimitReached(second)
		again := w.environment
		again.Ref.ObjectUID, again.Limit = "second incarnation", 1
		w.requireLimitReached(again)
		w.NoError(w.s.PutEnvironment(w.ctx, second))
	}},
	{"a project has a limit of its own", func(w *world) {
		other := w.project
		other.ID, other.Ref.Namespace = uuid.New(), "other"
		w.NoError(w.s.PutProject(w.ctx, other))
		e := w.limited("production", 1)
		e.ProjectID, e.Ref.Namespace = other.ID, "other"
		w.NoError(w.s.PutEnvironment(w.ctx, e))
	}},
	{"concurrent environments respect the limit", func(w *world) {
		var (
			group   sync.WaitGroup
			mu      sync.Mutex
			granted int
		)
		for range 8 {
			e := w.limited("e-"+uuid.NewString(), 4)
			group.Go(func() {
				err := w.s.PutEnvironment(w.ctx, e)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					granted++
				}
			})
		}
		group.Wait()
		w.Equal(3, granted, "one existed")
	}},
}
