// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// TokenKind says what a dispatch token is good for.
type TokenKind string

// Kinds of dispatch tokens.
const (
	// TokenRunner is of an environment's runner pool: it claims runs.
	TokenRunner TokenKind = "runner"
	// TokenBuild is of one deployment's build: it reports that build, no more.
	TokenBuild TokenKind = "build"
)

// Token is the record of a dispatch token, of which the store holds the
// SHA-256 only.
type Token struct {
	SHA256        []byte
	Kind          TokenKind
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	// DeploymentID is set for a build's token.
	DeploymentID *uuid.UUID
}

// Environment is the primary key of the token's environment.
func (t Token) Environment() Key { return Key{t.ProjectID, t.EnvironmentID} }

// Deployment is the primary key of a build token's deployment, the zero key for
// another token.
func (t Token) Deployment() Key {
	if t.DeploymentID == nil {
		return Key{}
	}
	return Key{t.ProjectID, *t.DeploymentID}
}

// Run is the primary key of a run of the token's project.
func (t Token) Run(id uuid.UUID) Key { return Key{t.ProjectID, id} }

// Tokens keeps dispatch tokens.
type Tokens interface {
	// PutToken records a token; a runner token replaces others of its
	// environment, a build token others of its deployment.
	PutToken(ctx context.Context, t Token) error
	// Token finds a token by its digest; ErrNotFound when unknown, when its
	// environment is gone, or when its deployment ended.
	Token(ctx context.Context, sha256 []byte) (Token, error)
}
