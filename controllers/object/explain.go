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
	// Later is for what somebody has to change.
	Later = 30 * time.Second
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

// WaitingError says what is most likely on its way.
type WaitingError struct{ Message string }

// Error is the message.
func (e *WaitingError) Error() string { return e.Message }

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
		stale   *store.StaleError
		taken   *store.IDTakenError
		missing *MissingError
		secret  *SecretError
		stalled *StalledError
		waiting *WaitingError
		broken  *StoreError
		foreign *NameCollisionError
		left    *LeftoverError
	)
	switch {
	case errors.Is(err, errBehind), errors.As(err, &stale):
		return soon, nil
	case errors.As(err, &taken):
		o.MarkIDTaken(taken.Holder.String())
		return Later, nil
	case errors.As(err, &stalled):
		o.MarkStalled(stalled.Reason, stalled.Message)
		return 0, nil
	case errors.As(err, &foreign):
		o.MarkStalled(v1alpha1.ReasonNameCollision, foreign.Error())
		return Later, nil
	case errors.As(err, &left):
		o.MarkReconciling(v1alpha1.ReasonProgressing, left.Error())
		return soon, nil
	case errors.As(err, &waiting):
		o.MarkReconciling(v1alpha1.ReasonProgressing, waiting.Message)
		return soon, nil
	case errors.Is(err, ErrProjectMissing):
		o.MarkProjectMissing()
		return soon, nil
	case errors.As(err, &missing) && missing.Unready:
		o.MarkReconciling(v1alpha1.ReasonProgressing, missing.Error())
		return soon, nil
	case errors.As(err, &missing):
		o.MarkReferenceMissing(missing.Kind, missing.Name)
		return Later, nil
	case errors.As(err, &secret) && secret.Problem != "":
		o.MarkSecretInvalid(secret.Name, secret.Problem)
		return soon, nil
	case errors.As(err, &secret):
		o.MarkSecretMissing(secret.Name)
		return soon, nil
	case errors.As(err, &broken):
		o.MarkStoreUnavailable()
		return 0, err
	case apierrors.IsConflict(err):
		return soon, nil
	}
	o.MarkReconciling(v1alpha1.ReasonProgressing, "trying again: "+inPublic(err))
	return 0, err
}

// inPublic is what a status says of an error that nothing above knows: the words
// of kube-apiserver, for any other error may tell of the operator's machines.
func inPublic(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return "an internal error; the manager's log has the cause"
}
