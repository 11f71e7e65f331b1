// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Retry intervals for changes that no watch reports.
const (
	// minRetryInterval is the first retry interval, for changes that are probably on their way, such as manifests
	// that were applied together.
	minRetryInterval = 2 * time.Second
	// MaxRetryInterval is the maximum retry interval: for changes that a person has to make, and for changes that
	// a watch also reports.
	MaxRetryInterval = 30 * time.Second
)

// ErrProjectMissing reports that the namespace has no Project in effect.
var ErrProjectMissing = errors.New("the namespace has no project")

// MissingError reports that an object which the spec names does not exist.
type MissingError struct {
	Kind, Name string
	// Unready reports that the object exists and is not in effect yet.
	Unready bool
}

// Error names the object.
func (e *MissingError) Error() string {
	if e.Unready {
		return fmt.Sprintf("%s %q is not in effect yet; see its conditions", e.Kind, e.Name)
	}
	return fmt.Sprintf("%s %q does not exist", e.Kind, e.Name)
}

// SecretError reports that a Secret which the spec names cannot be used.
type SecretError struct {
	Name string
	// Problem is empty if the Secret does not exist.
	Problem string
}

// Error names the Secret.
func (e *SecretError) Error() string {
	if e.Problem == "" {
		return fmt.Sprintf("Secret %q does not exist", e.Name)
	}
	return fmt.Sprintf("Secret %q: %s", e.Name, e.Problem)
}

// StalledError reports that a person has to change the spec.
type StalledError struct{ Reason, Message string }

// Error returns the message.
func (e *StalledError) Error() string { return e.Message }

// WaitingError reports a condition that probably resolves itself.
type WaitingError struct {
	// Reason is the reason of the condition. If empty, it is Progressing.
	Reason, Message string
}

// Error returns the message.
func (e *WaitingError) Error() string { return e.Message }

// StoreError marks an error as an error of the store.
type StoreError struct{ Err error }

// Error returns the cause.
func (e *StoreError) Error() string { return "store: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// FromStore marks an error as an error of the store. It returns nil for nil.
func FromStore(err error) error {
	if err == nil {
		return nil
	}
	return &StoreError{Err: err}
}

// Explain turns an error of work into conditions. It returns the retry interval, or an error for the
// queue's backoff and the log. Errors that only a person can fix are Stalled. Other errors are not, and
// their retry interval grows from minRetryInterval to MaxRetryInterval with the time that the condition lasts.
func (b *Base) Explain(o v1alpha1.ConditionedObject, err error) (time.Duration, error) {
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
	case errors.Is(err, errStaleCache), errors.As(err, &stale), apierrors.IsConflict(err):
		return minRetryInterval, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil // the object is deleted with its namespace
	case errors.As(err, &taken):
		v1alpha1.MarkIDTaken(o, taken.Holder.String())
		return MaxRetryInterval, nil
	case errors.As(err, &stalled):
		v1alpha1.MarkStalled(o, stalled.Reason, stalled.Message)
		return 0, nil
	case errors.As(err, &foreign):
		v1alpha1.MarkStalled(o, v1alpha1.ReasonNameCollision, foreign.Error())
		return MaxRetryInterval, nil
	case errors.As(err, &left):
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, left.Error())
		return b.retryInterval(o), nil
	case errors.As(err, &waiting):
		v1alpha1.MarkWaiting(o, cmp.Or(waiting.Reason, v1alpha1.ReasonProgressing), waiting.Message)
		return b.retryInterval(o), nil
	case errors.Is(err, ErrProjectMissing):
		v1alpha1.MarkProjectMissing(o)
		return MaxRetryInterval, nil
	case errors.As(err, &missing) && missing.Unready:
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, missing.Error())
		return b.retryInterval(o), nil
	case errors.As(err, &missing):
		v1alpha1.MarkReferenceMissing(o, missing.Kind, missing.Name)
		return MaxRetryInterval, nil
	case errors.As(err, &secret) && secret.Problem != "":
		v1alpha1.MarkSecretInvalid(o, secret.Name, secret.Problem)
		return MaxRetryInterval, nil
	case errors.As(err, &secret):
		v1alpha1.MarkSecretMissing(o, secret.Name)
		return MaxRetryInterval, nil
	case errors.As(err, &broken):
		v1alpha1.MarkStoreUnavailable(o)
		return 0, err
	case RejectionMessage(err) != "":
		v1alpha1.MarkStalled(o, v1alpha1.ReasonRefused, RejectionMessage(err))
		return MaxRetryInterval, nil
	}
	v1alpha1.MarkRetrying(o, publicMessage(err))
	return 0, err
}

// RejectionMessage returns the reason why Kubernetes rejects an object, for example a quota or an admission
// policy. It returns "" for all other errors, if the namespace is being deleted, and if the manager
// lacks a permission. Only the platform operator can grant a permission, so the log and the metrics
// report it.
func RejectionMessage(err error) string {
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	if !refused || isPermissionDenied(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ""
	}
	return "Kubernetes rejects a required object: " + publicMessage(err)
}

// isPermissionDenied reports whether kube-apiserver denied a permission of the manager. Quotas and policies
// return 403 too, but only the authorizer names the user.
func isPermissionDenied(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	_, why, _ := strings.Cut(publicMessage(err), " forbidden: ")
	return strings.HasPrefix(why, `User "`) && strings.Contains(why, `" cannot `)
}

// retryInterval returns the retry interval for an object that has been reconciling for a while: the same
// time again, between minRetryInterval and MaxRetryInterval.
func (b *Base) retryInterval(o v1alpha1.ConditionedObject) time.Duration {
	since := o.CommonStatus().Condition(v1alpha1.ConditionReconciling).LastTransitionTime
	return min(max(b.clockOrReal().Since(since.Time), minRetryInterval), MaxRetryInterval)
}

// publicMessage returns the text of an unknown error for a status. It shows only errors of kube-apiserver,
// because other errors may reveal the operator's infrastructure.
func publicMessage(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return "internal error; see the manager's log"
}
