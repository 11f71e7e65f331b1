// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// TokenKind is the kind of a dispatch token.
type TokenKind string

// Kinds of dispatch tokens.
const (
	// TokenRunner belongs to the runner pool of an environment. It can claim runs.
	TokenRunner TokenKind = "runner"
	// TokenBuild belongs to the build of one deployment. It can only report that build.
	TokenBuild TokenKind = "build"
)

// Token is the record of a dispatch token. The store has only its SHA-256.
type Token struct {
	SHA256        []byte
	Kind          TokenKind
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	// DeploymentID is set for a build token.
	DeploymentID *uuid.UUID
}

// Environment returns the primary key of the token's environment.
func (t Token) Environment() Key { return Key{t.ProjectID, t.EnvironmentID} }

// Deployment returns the primary key of a build token's deployment, the zero key for another token.
func (t Token) Deployment() Key {
	if t.DeploymentID == nil {
		return Key{}
	}
	return Key{t.ProjectID, *t.DeploymentID}
}

// Run returns the primary key of a run in the token's project.
func (t Token) Run(id uuid.UUID) Key { return Key{t.ProjectID, id} }

// Tokens stores dispatch tokens.
type Tokens interface {
	// PutToken records a token. A runner token replaces others of its environment, a build token
	// others of its deployment.
	PutToken(ctx context.Context, t Token) error
	// Token returns a token by its digest; ErrNotFound if it is unknown, its environment is
	// deleted, or its deployment has ended.
	Token(ctx context.Context, sha256 []byte) (Token, error)
}
