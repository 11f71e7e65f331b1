// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// outcomeTimeout bounds recording the outcome of a command that was interrupted.
const outcomeTimeout = 5 * time.Second

// auditCommand records a command of the platform operator on an object in the audit log, runs it, and records whether it failed. name
// is the command line after agentctl. auditCommand does not run a command that it cannot record. If only the outcome cannot be
// recorded, the command has been run and the error says so.
func auditCommand(ctx context.Context, log store.Audit, name string, object store.AuditObject, run func(context.Context) error) error {
	actor := store.AuditActor{Kind: store.AuditCommand, Name: localUser()}
	id, err := log.RecordAudit(ctx, store.AuditEntry{Operation: name, Object: object, Actor: actor})
	if err != nil {
		return fmt.Errorf("recording the command, which was not run: %w", err)
	}
	failed := run(ctx)
	outcome := store.AuditOutcome{}
	if failed != nil {
		outcome.Code = "failed" // the error may contain data that the log must not store
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
	defer cancel()
	if err := log.RecordAuditOutcome(ctx, uuid.Nil, id, outcome); err != nil {
		return errors.Join(failed, fmt.Errorf("recording the outcome of the command, which was run: %w", err))
	}
	return failed
}

// localUser returns user@host, as far as the system reports them.
func localUser() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
