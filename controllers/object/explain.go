// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Intervals at which is looked again for what no watch tells of.
const (
	// soon is for what is most likely on its way, as when manifests were applied
	// together.
	soon = 2 * time.Second
	// later is for what somebody has to change.
	later = 30 * time.Second
)

// ErrProjectMissing says that the namespace has no Project in effect.
var ErrProjectMissing = errors.New("the namespace has no project")

// MissingError says that an object which the spec names is not there.
type MissingError struct {
	Kind, Name string
	// Unready: it is there, and not in effect yet.
	Unready bool
}

// Error names the object.
func (e *MissingError) Error() string {
	if e.Unready {
		return fmt.Sprintf("%s %q is not in effect yet; see what it says", e.Kind, e.Name)
	}
	return fmt.Sprintf("%s %q does not exist", e.Kind, e.Name)
}

// SecretError says that a Secret which the spec names cannot be used.
type SecretError struct {
	Name string
	// Problem is empty when the Secret is not there.
	Problem string
}

// Error names the Secret.
func (e *SecretError) Error() string {
	if e.Problem == "" {
		return fmt.Sprintf("Secret %q does not exist", e.Name)
	}
	return fmt.Sprintf("Secret %q: %s", e.Name, e.Problem)
}

// StalledError says that somebody has to change the spec.
type StalledError struct{ Reason, Message string }

// Error is the message.
func (e *StalledError) Error() string { return e.Message }

// StoreError marks an error as the store's.
type StoreError struct{ Err error }

// Error shows the cause.
func (e *StoreError) Error() string { return "store: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// FromStore marks an error of the store; nil stays nil.
func FromStore(err error) error {
	if err == nil {
		return nil
	}
	return &StoreError{Err: err}
}

// Explain turns an error into the condition that names cause and remedy. It
// returns when to look again; the error remains where only trying again helps.
func Explain(o v1alpha1.ConditionedObject, err error) (time.Duration, error) {
	var (
		taken   *store.IDTakenError
		missing *MissingError
		secret  *SecretError
		stalled *StalledError
		broken  *StoreError
	)
	switch {
	case errors.Is(err, store.ErrStale):
		return soon, nil // the cache is behind; the newer generation comes
	case errors.As(err, &taken):
		o.MarkIDTaken(taken.Holder.String())
		return later, nil
	case errors.As(err, &stalled):
		o.MarkStalled(stalled.Reason, stalled.Message)
		return 0, nil
	case errors.Is(err, ErrProjectMissing):
		o.MarkProjectMissing()
		return soon, nil
	case errors.As(err, &missing) && missing.Unready:
		o.MarkReconciling(v1alpha1.ReasonProgressing, missing.Error())
		return soon, nil
	case errors.As(err, &missing):
		o.MarkReferenceMissing(missing.Kind, missing.Name)
		return later, nil
	case errors.As(err, &secret) && secret.Problem != "":
		o.MarkSecretInvalid(secret.Name, secret.Problem)
		return soon, nil
	case errors.As(err, &secret):
		o.MarkSecretMissing(secret.Name)
		return soon, nil
	case errors.As(err, &broken):
		o.MarkStoreUnavailable(broken.Err)
		return 0, err
	case apierrors.IsConflict(err):
		return soon, nil
	}
	o.MarkReconciling(v1alpha1.ReasonProgressing, "trying again: "+err.Error())
	return 0, err
}
