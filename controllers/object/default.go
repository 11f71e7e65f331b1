// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Defaults is what the store knows of default environments.
type Defaults interface {
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
}

// DefaultName is the name of a project's default environment that is in effect, "" for none:
// the one that the project names while that is there, else the first created, as the store
// remembers it.
func (b *Base) DefaultName(ctx context.Context, s Defaults, project *v1alpha1.Project, id uuid.UUID) (string, error) {
	if asked := project.Spec.DefaultEnvironment; asked != "" {
		_, _, err := b.Environment(ctx, project.Namespace, asked)
		if !errors.As(err, new(*MissingError)) {
			return string(asked), err
		}
	}
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
