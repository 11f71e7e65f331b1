// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/hint"
)

const (
	// channel is the channel of all hints.
	channel = "ap"
	// payloadHints is the number of hints per notification, which may have 8000 bytes.
	payloadHints = 90
	// pendingHints is the maximum number of pending hints. Beyond it, "read everything" replaces
	// them.
	pendingHints = 20_000
	// idleCheckAfter is the time without input until the notifier checks the connection. notifyTimeout limits
	// this check, a notification, and the start of listening. Otherwise the notifier could wait
	// forever for a dead server, or for a proxy that accepts all bytes.
	idleCheckAfter = 30 * time.Second
	notifyTimeout  = 10 * time.Second
	// reconnectAfter is the pause before reconnecting.
	reconnectAfter = 500 * time.Millisecond
)

// notifier exchanges hints with other processes. Hints of this process are sent in few
// notifications on one connection, hints of others are received on another. NOTIFY takes a lock on
// the whole database at commit, so hot transactions do not use it.
type notifier struct {
	config *pgx.ConnConfig
	renew  func(context.Context, *pgx.ConnConfig) error
	hub    *hint.Hub
	logger *slog.Logger
	origin string // of this process's notifications, which it ignores
	cancel context.CancelFunc
	done   sync.WaitGroup
	// withTimeout is Options.withTimeout.
	withTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)

	mu      sync.Mutex
	pending map[store.Hint]struct{}
	wake    chan struct{}
}

func startNotifier(config *pgx.ConnConfig, hub *hint.Hub, o Options) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{
		config: config, renew: o.refreshConfig, hub: hub, logger: o.Logger, origin: uuid.NewString(), cancel: cancel, withTimeout: o.withTimeout,
		pending: map[store.Hint]struct{}{}, wake: make(chan struct{}, 1),
	}
	n.done.Go(func() { n.keepRunning(ctx, "sending hints", n.sendAll) })
	n.done.Go(func() { n.keepRunning(ctx, "listening for hints", n.listenForHints) })
	return n
}

func (n *notifier) close() {
	n.cancel()
	n.done.Wait()
}

// queueHints queues hints and never waits.
func (n *notifier) queueHints(hints []store.Hint) {
	n.mu.Lock()
	for _, h := range hints {
		h.End = nil // other processes read it from the store
		if len(n.pending) >= pendingHints {
			h.Key = store.Key{}
		}
		n.pending[h] = struct{}{}
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) takeHints() []store.Hint {
	n.mu.Lock()
	defer n.mu.Unlock()
	hints := make([]store.Hint, 0, len(n.pending))
	for h := range n.pending {
		hints = append(hints, h)
	}
	clear(n.pending)
	return hints
}

// keepRunning runs a task on its own connection, and again on a new connection if that one is lost.
func (n *notifier) keepRunning(ctx context.Context, what string, task func(ctx context.Context, conn *pgx.Conn) error) {
	for ctx.Err() == nil {
		err := n.runConnected(ctx, task)
		if err == nil || ctx.Err() != nil {
			continue
		}
		n.logger.Warn(what+" was interrupted", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
}

func (n *notifier) runConnected(ctx context.Context, task func(ctx context.Context, conn *pgx.Conn) error) error {
	config := n.config.Copy()
	if err := n.renew(ctx, config); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
		defer cancel()
		_ = conn.Close(ctx) // the connection is unusable
	}()
	return task(ctx, conn)
}

// sendAll sends pending hints until ctx ends. Hints that a lost connection did not send stay
// pending.
func (n *notifier) sendAll(ctx context.Context, conn *pgx.Conn) error {
	for {
		if hints := n.takeHints(); len(hints) > 0 {
			if err := n.notify(ctx, conn, hints); err != nil {
				n.queueHints(hints)
				return fmt.Errorf("notifying: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		}
	}
}

func (n *notifier) notify(ctx context.Context, conn *pgx.Conn, hints []store.Hint) error {
	ctx, cancel := n.withTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, `SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload`, channel, n.payloads(hints))
	return err
}

// payloads returns notifications of lines: the origin, then `topic project/id` for each hint.
func (n *notifier) payloads(hints []store.Hint) (out []string) {
	for len(hints) > 0 {
		count := min(len(hints), payloadHints)
		var b strings.Builder
		b.WriteString(n.origin)
		for _, h := range hints[:count] {
			b.WriteString("\n" + string(h.Topic) + " " + h.Key.String())
		}
		out, hints = append(out, b.String()), hints[count:]
	}
	return out
}

// listenForHints publishes hints of other processes. Earlier hints are lost, so it starts with "read
// everything".
func (n *notifier) listenForHints(ctx context.Context, conn *pgx.Conn) error {
	asking, cancel := n.withTimeout(ctx, notifyTimeout)
	_, err := conn.Exec(asking, "LISTEN "+channel)
	cancel()
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	n.hub.Lost()
	for {
		notification, err := n.nextNotification(ctx, conn)
		if err != nil {
			return fmt.Errorf("waiting for a notification: %w", err)
		}
		if notification != nil {
			n.hub.Publish(n.parsePayload(notification.Payload))
		}
	}
}

// nextNotification returns the next notification; nil after idleCheckAfter if the server responds.
func (n *notifier) nextNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, cancel := n.withTimeout(ctx, idleCheckAfter)
	notification, err := conn.WaitForNotification(waiting)
	cancel()
	if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
		return notification, err
	}
	asking, cancel := n.withTimeout(ctx, notifyTimeout)
	defer cancel()
	return nil, conn.Ping(asking)
}

func (n *notifier) parsePayload(payload string) (hints []store.Hint) {
	origin, rest, _ := strings.Cut(payload, "\n")
	if origin == n.origin {
		return nil
	}
	for line := range strings.Lines(rest) {
		topic, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, err := parseKey(text)
		if err != nil {
			n.logger.Warn("ignoring an unknown notification", "payload", payload)
			return hints
		}
		hints = append(hints, store.Hint{Topic: store.Topic(topic), Key: key})
	}
	return hints
}

// parseKey parses the format of store.Key.String.
func parseKey(text string) (key store.Key, err error) {
	project, id, _ := strings.Cut(text, "/")
	if key.ProjectID, err = uuid.Parse(project); err == nil {
		key.ID, err = uuid.Parse(id)
	}
	return key, err
}
