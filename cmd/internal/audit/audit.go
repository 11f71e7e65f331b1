// SPDX-License-Identifier: Apache-2.0

// Package audit records the commands of platform operators.
package audit

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

// Command describes a command for the audit log.
type Command struct {
	// Name is the command line after agentctl, such as "keys rotate".
	Name string
	// ProjectID is the project that it is about; nil for the platform itself.
	ProjectID uuid.UUID
	Object    store.AuditObject
	// User is the user of the command. The default is the user of the operating system and its host.
	User string
}

// Run records a command in the audit log, runs it, and records whether it failed. It does not run a command that it cannot
// record. If only the outcome cannot be recorded, the command has been run and the error says so.
func Run(ctx context.Context, log store.Audit, c Command, run func(context.Context) error) error {
	if c.User == "" {
		c.User = localUser()
	}
	id, err := log.RecordAudit(ctx, store.AuditEntry{
		ProjectID: c.ProjectID, Operation: c.Name, Object: c.Object,
		Actor: store.AuditActor{Kind: store.AuditCommand, Name: c.User},
	})
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
	if err := log.RecordAuditOutcome(ctx, c.ProjectID, id, outcome); err != nil {
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
