// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

// teller returns rejections, or an error.
type teller struct {
	news  []store.RejectionNews
	err   error
	limit int
}

func (s *teller) TakeRejectionNews(_ context.Context, limit int) ([]store.RejectionNews, error) {
	s.limit = limit
	news := s.news
	s.news = nil
	return news, s.err
}

func newsOf(namespace, name, uid string, counts map[string]int64) store.RejectionNews {
	return store.RejectionNews{Ref: store.ObjectRef{Namespace: namespace, Kind: store.KindConnector, Name: name, ObjectUID: uid}, Counts: counts}
}

// Rejected requests are an event of the connector with this UID, in the manager's namespaces only.
func TestRejections_AreEventsOfTheirConnector(t *testing.T) {
	t.Parallel()
	connector := func(namespace, name, uid string) *v1alpha1.Connector {
		return &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	}
	events := &controllertest.Events{}
	from := &teller{news: []store.RejectionNews{
		newsOf("shop", "gone", "0", map[string]int64{"invalid_secret": 1}),
		newsOf("shop", "another", "0", map[string]int64{"invalid_secret": 1}),
		newsOf("elsewhere", "theirs", "3", map[string]int64{"invalid_secret": 1}),
		newsOf("shop", "orders", "1", map[string]int64{"no_agent": 2, "invalid_secret": 35, "backlog_full": 2}),
		newsOf("shop", "one", "4", map[string]int64{"no_agent": 1}),
	}}
	r := newRejections(&base.Base{
		Client: controllertest.Cached(t, connector("shop", "orders", "1"), connector("shop", "another", "2"), connector("elsewhere", "theirs", "3"), connector("shop", "one", "4")),
		Events: events, Namespaces: namespaces.Set{"shop"},
	}, from)
	looks := 0
	r.wait = func(_ context.Context, pause time.Duration) error {
		require.Equal(t, rejectionInterval, pause)
		if looks++; looks > 2 {
			return errors.New("the manager stops")
		}
		return nil
	}
	require.True(t, r.NeedLeaderElection())
	require.NoError(t, r.Start(t.Context()))
	require.Equal(t, rejectionLimit, from.limit)
	const where = ". GET …/connectors/{id}/rejections of the REST API lists the newest"
	require.Equal(t, []string{
		"Warning WebhookRejected: 39 requests were rejected: invalid_secret 35, backlog_full 2, no_agent 2" + where,
		"Warning WebhookRejected: 1 request was rejected: no_agent 1" + where,
	}, events.Sent())
	from.err = errors.New("away")
	require.ErrorIs(t, r.reportRejections(t.Context()), from.err)
}
