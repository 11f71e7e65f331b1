// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// indexRuns indexes ended runs, with a word that all of them have.
func (t *tour) indexRuns() {
	t.requireSuccess(t.Store.IndexRuns(t.ctx, 100, func(store.Searched) []string { return []string{"done"} }))
}

// searchRuns searches runs, from the newest and before one.
func (t *tour) searchRuns(next uuid.UUID) {
	for _, search := range []store.Search{{}, {Words: []string{"done"}}, {Words: []string{"nothing"}, AgentName: t.Links[0].AgentName, Status: store.RunFailed}} {
		search.Match = func(context.Context, store.Searched) bool { return true }
		for _, before := range []*uuid.UUID{nil, &next} {
			_, _, err := t.Store.ListRuns(t.ctx, store.RunQuery{ProjectID: t.Project, Search: &search, Before: before, Limit: 20})
			t.NoError(err)
		}
		_, err := t.Store.RunStatistics(t.ctx, store.StatisticsQuery{
			Environment: t.key(t.Environment), AgentName: t.Links[0].AgentName, Since: time.Now().Add(-time.Minute), Search: &search,
		})
		if err != nil {
			t.ErrorIs(err, store.ErrSearchTooBroad)
		}
	}
}
