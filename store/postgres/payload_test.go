// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func TestPayloads_FitNotifications(t *testing.T) {
	t.Parallel()
	sender, receiver := &notifier{origin: uuid.NewString()}, &notifier{logger: slog.New(slog.DiscardHandler)}
	hints := make([]store.Hint, 1000)
	for i := range hints {
		hints[i] = store.Hint{Topic: store.TopicDeployment, Key: store.Key{ProjectID: uuid.New(), ID: uuid.New()}}
	}
	var received []store.Hint
	for _, payload := range sender.payloads(hints) {
		require.Less(t, len(payload), 8000, "PostgreSQL takes no more")
		require.Empty(t, sender.parsePayload(payload), "one's own")
		received = append(received, receiver.parsePayload(payload)...)
	}
	require.Equal(t, hints, received)
	require.Empty(t, receiver.parsePayload("origin\nqueued "+uuid.NewString()), "without a project it is none of ours")
}
