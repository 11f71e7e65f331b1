// SPDX-License-Identifier: Apache-2.0

// Package platformkeys keeps the Secret of the platform's keys: it makes it for
// an empty store, brings new keys into use, and lets revoked ones go.
package platformkeys

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,resourceNames=agentplatform-keys,verbs=get;patch

// PlatformIDEntry of the Secret holds the platform's id, a UUID of which the ids
// of all projects are made. It travels with the keys, so that ids and webhook
// URLs are the same in another cluster.
const PlatformIDEntry = "platform-id"

// Secret is the Secret of the platform's keys.
type Secret struct {
	// Client must not read from a cache.
	Client client.Client
	// Namespace is the system namespace.
	Namespace string
}

func (s Secret) name() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: keyring.SecretName}
}

func (s Secret) get(ctx context.Context) (*corev1.Secret, keyring.Ring, error) {
	secret := &corev1.Secret{}
	if err := s.Client.Get(ctx, s.name(), secret); err != nil {
		if apierrors.IsNotFound(err) {
			err = keyring.ErrAbsent
		}
		return nil, keyring.Ring{}, fmt.Errorf("reading Secret %s: %w", s.name(), err)
	}
	ring, err := keyring.Parse(secret.Data)
	if err != nil {
		return nil, keyring.Ring{}, fmt.Errorf("reading Secret %s: %w", s.name(), err)
	}
	return secret, ring, nil
}

// Read reads the ring; keyring.ErrAbsent while there is no Secret.
func (s Secret) Read(ctx context.Context) (keyring.Ring, error) {
	_, ring, err := s.get(ctx)
	return ring, err
}

// Ledger is what must be known of the store before keys are made.
type Ledger interface {
	Cluster(ctx context.Context) (store.ClusterLease, error)
	store.KeyLedger
}

// Ensure returns the platform's id: that of the Secret, or given, which wins. It
// makes the Secret where it is absent, but only for a store that knows no keys:
// what was sealed and derived with others would be lost without a word.
func (s Secret) Ensure(ctx context.Context, ledger Ledger, given uuid.UUID) (uuid.UUID, error) {
	secret, _, err := s.get(ctx)
	if errors.Is(err, keyring.ErrAbsent) {
		if err = s.make(ctx, ledger, given); err == nil {
			secret, _, err = s.get(ctx)
		}
	}
	if err != nil || given != uuid.Nil {
		return given, err
	}
	id, err := uuid.ParseBytes(secret.Data[PlatformIDEntry])
	if err != nil {
		return uuid.Nil, fmt.Errorf("reading %s of Secret %s: it is no UUID; put the platform's id there, or give it by --platform-id",
			PlatformIDEntry, s.name())
	}
	return id, nil
}

func (s Secret) make(ctx context.Context, ledger Ledger, id uuid.UUID) error {
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
			return fmt.Errorf("reading the platform's id: %w", err)
		}
		return fmt.Errorf("Secret %s is absent, and the store of platform %s is not empty: %w", s.name(), lease.PlatformID, missing)
	}
	if id == uuid.Nil {
		id = uuid.New()
	}
	ring, err := keyring.New()
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
			Namespace: s.Namespace, Name: keyring.SecretName, Labels: map[string]string{object.LabelManagedBy: object.ManagedBy},
		},
		Data: data,
	}, client.FieldOwner(object.FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) { // another manager was quicker
		return fmt.Errorf("making Secret %s: %w", s.name(), err)
	}
	return nil
}

// write puts a ring and a status into the Secret, unless somebody else changed
// it since it was read.
func (s Secret) write(ctx context.Context, secret *corev1.Secret, ring keyring.Ring, status string) error {
	data, err := ring.Data()
	if err != nil {
		return err
	}
	before := secret.DeepCopy()
	for entry, content := range data {
		secret.Data[entry] = content
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[keyring.StatusAnnotation] = status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, secret, patch, client.FieldOwner(object.FieldManager)); err != nil {
		return fmt.Errorf("writing Secret %s: %w", s.name(), err)
	}
	return nil
}
