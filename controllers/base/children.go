// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Labels of children. The cache selects objects by the first one.
const (
	LabelManagedBy = v1alpha1.LabelManagedBy
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"
	LabelInstance  = "app.kubernetes.io/instance"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = v1alpha1.ManagedBy
	// TokenKey is the key of a token Secret.
	TokenKey = "token"
)

// maxChildName is the maximum length of a child's name, because names are also label values.
const maxChildName = 63

// Labels returns the labels of a child. component is its role, such as "runner", and instance is its
// owner.
func Labels(component, instance string) map[string]string {
	return map[string]string{
		LabelManagedBy: ManagedBy, LabelName: "agentplatform-" + component, LabelComponent: component, LabelInstance: instance,
	}
}

// ChildName returns owner-suffix. A long owner is cut in the middle.
func ChildName(owner, suffix string) string {
	name := owner + "-" + suffix
	if len(name) <= maxChildName {
		return name
	}
	sum := sha256.Sum256([]byte(owner))
	mark := "-" + hex.EncodeToString(sum[:4]) + "-" + suffix
	return owner[:maxChildName-len(mark)] + mark
}

// OwnerReference returns a reference that makes owner the controller of a child. Kubernetes deletes the
// child with its owner.
func (b *Base) OwnerReference(owner client.Object) (metav1.OwnerReference, error) {
	gvk, err := apiutil.GVKForObject(owner, b.Client.Scheme())
	if err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("naming the owner %q: %w", owner.GetName(), err)
	}
	ref := metav1.NewControllerRef(owner, gvk)
	ref.BlockOwnerDeletion = new(bool)
	return *ref, nil
}

// Apply writes a child of owner by server-side apply and owns only the fields that child has. It does
// not change an object of another owner with the same name; see Child. child then has the generation
// that was written.
func (b *Base) Apply(ctx context.Context, owner, child client.Object) error {
	u, err := b.fieldsToWrite(owner, child)
	if err != nil {
		return fmt.Errorf("applying %q: %w", child.GetName(), err)
	}
	found, err := b.Child(ctx, owner, child)
	if err != nil {
		return err
	}
	seen := client.Object(found)
	if found == nil {
		// Create instead of apply, which would also take over an object that appeared since the read.
		created := u.DeepCopy()
		if err := b.Client.Create(ctx, created, client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("creating %s %q: %w", u.GetKind(), u.GetName(), err)
		}
		seen = created
	}
	if err := b.convertToApply(ctx, seen); err != nil {
		return err
	}
	u.SetUID(seen.GetUID()) // limits the apply to the object that was read
	if err := b.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %q: %w", u.GetKind(), u.GetName(), err)
	}
	child.SetGeneration(u.GetGeneration())
	return nil
}

// fieldsToWrite returns the fields of child to write.
func (b *Base) fieldsToWrite(owner, child client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(child, b.Client.Scheme())
	if err != nil {
		return nil, err
	}
	ref, err := b.OwnerReference(owner)
	if err != nil {
		return nil, err
	}
	child.SetOwnerReferences([]metav1.OwnerReference{ref})
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "creationTimestamp")
	return u, nil
}

// convertToApply converts the fields of a create to fields of an apply, so that a later apply without them
// removes them.
func (b *Base) convertToApply(ctx context.Context, child client.Object) error {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(child, sets.New(FieldManager), FieldManager)
	if err != nil || patch == nil {
		return wrapConversion(err, child)
	}
	return wrapConversion(b.Client.Patch(ctx, child, client.RawPatch(types.JSONPatchType, patch)), child)
}

func wrapConversion(err error, child client.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("taking over the fields of %q: %w", child.GetName(), err)
}

// Token returns the token in the Secret with this name, if owner controls the Secret. If the Secret
// does not exist, Token creates it with a random token. admit stores the token, before a pod can have
// it.
func (b *Base) Token(
	ctx context.Context, owner client.Object, name string, labels map[string]string, admit func(token string) error,
) (string, error) {
	secret, err := b.SecretObject(ctx, owner.GetNamespace(), name)
	missing := (*SecretError)(nil)
	switch {
	case errors.As(err, &missing):
	case err != nil:
		return "", err
	default:
		if err := b.checkController(owner, "Secret", secret); err != nil {
			return "", err
		}
		if token := string(secret.Data[TokenKey]); token != "" {
			return token, errors.Join(admit(token), b.restoreLabel(ctx, "Secret", secret))
		}
	}
	token := rand.Text() + rand.Text()
	if err := admit(token); err != nil {
		return "", err
	}
	return token, b.Apply(ctx, owner, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: owner.GetNamespace(), Labels: labels},
		Data:       map[string][]byte{TokenKey: []byte(token)},
	})
}

// Secret returns the data of a Secret, read without a cache. It returns *SecretError if the Secret does
// not exist.
func (b *Base) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	secret, err := b.SecretObject(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// SecretObject returns a Secret, read without a cache. It returns *SecretError if the Secret does not
// exist.
func (b *Base) SecretObject(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := b.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, &SecretError{Name: name}
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %q: %w", name, err)
	}
	return secret, nil
}

// SecretValue returns the value of one key of a Secret, read without a cache. It returns *SecretError
// if the Secret or the key does not exist.
func (b *Base) SecretValue(ctx context.Context, namespace string, ref v1alpha1.SecretKeyReference) (string, error) {
	data, err := b.Secret(ctx, namespace, string(ref.Name))
	if err != nil {
		return "", err
	}
	return valueOfKey(data, ref)
}

// valueOfKey returns the value of one key in the data of a Secret, or *SecretError if it does not exist.
func valueOfKey(data map[string][]byte, ref v1alpha1.SecretKeyReference) (string, error) {
	value, ok := data[ref.Key]
	if !ok {
		return "", &SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("it has no key %q", ref.Key)}
	}
	return string(value), nil
}
