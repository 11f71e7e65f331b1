// SPDX-License-Identifier: Apache-2.0

package object

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

// Intervals at which is looked again for what no watch tells of.
const (
	// soon is the first pause for what is most likely on its way, as when manifests
	// were applied together.
	soon = 2 * time.Second
	// Later is the longest pause of any kind: for what somebody has to change, and
	// for what is watched too.
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
type WaitingError struct {
	// Reason is the condition's; "" for Progressing.
	Reason, Message string
}

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

// Explain turns what work returned into conditions, and returns when to try again,
// or the error for the queue's own pauses and the log. What only a person can mend
// is Stalled; what may mend itself is not, and is looked at again after as long as
// it has been so, from soon to Later.
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
	case errors.Is(err, errBehind), errors.As(err, &stale), apierrors.IsConflict(err):
		return soon, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil // the object goes with its namespace
	case errors.As(err, &taken):
		v1alpha1.MarkIDTaken(o, taken.Holder.String())
		return Later, nil
	case errors.As(err, &stalled):
		v1alpha1.MarkStalled(o, stalled.Reason, stalled.Message)
		return 0, nil
	case errors.As(err, &foreign):
		v1alpha1.MarkStalled(o, v1alpha1.ReasonNameCollision, foreign.Error())
		return Later, nil
	case errors.As(err, &left):
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, left.Error())
		return b.patience(o), nil
	case errors.As(err, &waiting):
		v1alpha1.MarkWaiting(o, cmp.Or(waiting.Reason, v1alpha1.ReasonProgressing), waiting.Message)
		return b.patience(o), nil
	case errors.Is(err, ErrProjectMissing):
		v1alpha1.MarkProjectMissing(o)
		return Later, nil
	case errors.As(err, &missing) && missing.Unready:
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, missing.Error())
		return b.patience(o), nil
	case errors.As(err, &missing):
		v1alpha1.MarkReferenceMissing(o, missing.Kind, missing.Name)
		return Later, nil
	case errors.As(err, &secret) && secret.Problem != "":
		v1alpha1.MarkSecretInvalid(o, secret.Name, secret.Problem)
		return Later, nil
	case errors.As(err, &secret):
		v1alpha1.MarkSecretMissing(o, secret.Name)
		return Later, nil
	case errors.As(err, &broken):
		v1alpha1.MarkStoreUnavailable(o)
		return 0, err
	case Refusal(err) != "":
		v1alpha1.MarkStalled(o, v1alpha1.ReasonRefused, Refusal(err))
		return Later, nil
	}
	v1alpha1.MarkRetrying(o, inPublic(err))
	return 0, err
}

// Refusal says that Kubernetes refuses an object, as a quota or a policy does; "" for
// any other error, where the namespace is going, and where the manager lacks a right:
// that is the operator's to mend, by the log and the metrics of what fails.
func Refusal(err error) string {
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	if !refused || lacksRight(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ""
	}
	return "Kubernetes refuses what this needs: " + inPublic(err)
}

// lacksRight says whether it is the manager whom kube-apiserver does not let do this. Quotas and
// policies answer 403 too; only those who authorize say who cannot.
func lacksRight(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	_, why, _ := strings.Cut(inPublic(err), " forbidden: ")
	return strings.HasPrefix(why, `User "`) && strings.Contains(why, `" cannot `)
}

// patience is how long to wait for what has been under way for a while: as long
// again, from soon to Later.
func (b *Base) patience(o v1alpha1.ConditionedObject) time.Duration {
	since := o.CommonStatus().Condition(v1alpha1.ConditionReconciling).LastTransitionTime
	return min(max(b.clock().Since(since.Time), soon), Later)
}

// inPublic is what a status says of an error that nothing above knows: the words
// of kube-apiserver, for any other error may tell of the operator's machines.
func inPublic(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return "an internal error; the manager's log has the cause"
}
