// SPDX-License-Identifier: Apache-2.0

// Package platformkeys manages the Secret with the platform's keys: it creates the Secret for an empty
// store, puts new keys into use, and removes revoked ones.
package platformkeys

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,resourceNames=agentplatform-keys,verbs=get;patch

// PlatformIDEntry of the Secret is the platform ID, a UUID from which all project IDs derive. It moves
// with the keys, so that IDs and webhook URLs are the same in another cluster.
const PlatformIDEntry = "platform-id"

// Secret is the Secret with the platform's keys.
type Secret struct {
	// Client must not read from a cache.
	Client client.Client
	// Namespace is the system namespace.
	Namespace string
}

func (s Secret) secretName() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: secrets.SecretName}
}

func (s Secret) getSecret(ctx context.Context) (*corev1.Secret, secrets.Ring, error) {
	secret := &corev1.Secret{}
	if err := s.Client.Get(ctx, s.secretName(), secret); err != nil {
		if apierrors.IsNotFound(err) {
			err = secrets.ErrKeysAbsent
		}
		return nil, secrets.Ring{}, fmt.Errorf("reading Secret %s: %w", s.secretName(), err)
	}
	ring, err := secrets.ParseRing(secret.Data)
	if err != nil {
		return nil, secrets.Ring{}, fmt.Errorf("reading Secret %s: %w", s.secretName(), err)
	}
	return secret, ring, nil
}

// Read returns the ring, or secrets.ErrKeysAbsent if there is no Secret.
func (s Secret) Read(ctx context.Context) (secrets.Ring, error) {
	_, ring, err := s.getSecret(ctx)
	return ring, err
}

// Ledger has the store methods that Ensure needs before it creates keys.
type Ledger interface {
	Cluster(ctx context.Context) (store.ClusterLease, error)
	store.KeyLedger
}

// Ensure returns the platform ID: given if it is set, otherwise the ID in the Secret. If the Secret is
// missing, it creates one, but only for a store without keys. Otherwise everything that the lost keys
// sealed and derived would be lost silently.
func (s Secret) Ensure(ctx context.Context, ledger Ledger, given uuid.UUID) (uuid.UUID, error) {
	secret, _, err := s.getSecret(ctx)
	if errors.Is(err, secrets.ErrKeysAbsent) {
		if err = s.makeSecret(ctx, ledger, given); err == nil {
			secret, _, err = s.getSecret(ctx)
		}
	}
	if err != nil || given != uuid.Nil {
		return given, err
	}
	id, err := uuid.ParseBytes(secret.Data[PlatformIDEntry])
	if err != nil {
		return uuid.Nil, fmt.Errorf("reading %s of Secret %s: not a UUID; set it to the platform ID, or set --platform-id",
			PlatformIDEntry, s.secretName())
	}
	return id, nil
}

func (s Secret) makeSecret(ctx context.Context, ledger Ledger, id uuid.UUID) error {
	known, err := ledger.Keys(ctx, store.KeyHolderAge)
	if err != nil {
		return err
	}
	missing := &store.MissingKeysError{}
	for _, key := range known {
		if key.RetiredAt == nil {
			missing.Missing = append(missing.Missing, key.ID)
		}
	}
	if len(known) > 0 {
		lease, err := ledger.Cluster(ctx)
		if err != nil {
			return fmt.Errorf("reading the platform ID: %w", err)
		}
		return fmt.Errorf("Secret %s does not exist, and the store of platform %s is not empty: %w", s.secretName(), lease.PlatformID, missing)
	}
	if id == uuid.Nil {
		id = uuid.New()
	}
	ring, err := secrets.NewRing()
	if err != nil {
		return err
	}
	data, err := ring.Data()
	if err != nil {
		return err
	}
	data[PlatformIDEntry] = []byte(id.String())
	err = s.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: secrets.SecretName, Labels: map[string]string{base.LabelManagedBy: base.ManagedBy},
		},
		Data: data,
	}, client.FieldOwner(base.FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) { // another manager was faster
		return fmt.Errorf("making Secret %s: %w", s.secretName(), err)
	}
	return nil
}

// writeSecret writes a ring and a status to the Secret, unless it changed since it was read.
func (s Secret) writeSecret(ctx context.Context, secret *corev1.Secret, ring secrets.Ring, status string) error {
	data, err := ring.Data()
	if err != nil {
		return err
	}
	before := secret.DeepCopy()
	maps.Copy(secret.Data, data)
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[secrets.KeyStatusAnnotation] = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, secret, patch, client.FieldOwner(base.FieldManager)); err != nil {
		return fmt.Errorf("writing Secret %s: %w", s.secretName(), err)
	}
	return nil
}
