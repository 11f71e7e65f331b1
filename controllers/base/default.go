// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Defaults reads default environments from the store.
type Defaults interface {
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
}

// DefaultName returns the name of the effective default environment, or "" if there is none. This is
// the environment that the project names if it is in effect, otherwise the first created one, which the
// store records. missing says why the named environment is not the default. It is nil if it is, or if
// the project names none.
func (b *Base) DefaultName(ctx context.Context, s Defaults, project *v1alpha1.Project, id uuid.UUID) (name string, missing *MissingError, err error) {
	if asked := project.Spec.DefaultEnvironment; asked != "" {
		_, _, err := b.Environment(ctx, project.Namespace, asked)
		if !errors.As(err, &missing) {
			return string(asked), nil, err
		}
	}
	name, err = b.storedDefaultName(ctx, s, id)
	return name, missing, err
}

// storedDefaultName returns the name of the default environment that the store records, or "" if there is none.
func (b *Base) storedDefaultName(ctx context.Context, s Defaults, id uuid.UUID) (string, error) {
	chosen, err := s.DefaultEnvironment(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", FromStore(fmt.Errorf("finding the default environment: %w", err))
	}
	environment, err := s.Environment(ctx, store.Key{ProjectID: id, ID: chosen})
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", FromStore(fmt.Errorf("reading the default environment: %w", err))
	}
	return environment.Ref.Name, nil
}
