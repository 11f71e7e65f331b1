// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

const (
	someID      = v1alpha1.UUID("7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10")
	anotherID   = v1alpha1.UUID("0c2f6c4e-1f0b-4b8e-8a30-5b6a2c1d9e77")
	someCommit  = v1alpha1.GitCommit("2fd4e1c67a2d28fced849ee1bb76e7391b93eb12")
	otherCommit = v1alpha1.GitCommit("de9f2c7fd25e1b3afad3e85a0bd17d9b100db4b3")
)

// Messages of the types that several fields share.
const (
	uuidMessage        = "must be a random UUID (version 4 or 7), such as 7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10; generate one with uuidgen"
	timeMessage        = "must be a time in UTC, such as 2030-01-31T12:00:00Z"
	derivedID          = v1alpha1.UUID("28623ccb-65eb-53ce-9b18-80e9c90551e7")
	nameMessage        = "must be the name of an object in this namespace: lower-case letters, digits, '-' and '.'"
	environmentMessage = "must be the name of an Environment: lower-case letters, digits and '-'"
	connectorMessage   = "must be the name of a Connector, such as orders or production.orders"
	agentMessage       = "must be the name of an agent: lower-case letters, digits and '-'"
	branchMessage      = "must be the name of a git branch, such as main or release/1.2"
	commitMessage      = "must be the full hash of a commit: 40 hexadecimal digits in lower case"
	keyMessage         = "must be a key of a Secret: letters, digits, '-', '_' and '.'"
)

// noTime is written with a year of five digits.
var noTime = metav1.NewTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))

// breach is a manifest that the API server must refuse. The rule is at path (as
// the CRD nests it, "[]" for items) and has that message.
type breach[T client.Object] struct {
	name, path, message string
	// before changes the object that is created first; change then is the update
	// to refuse. Without before and with update false, change is applied to the
	// object before its creation.
	before func(T)
	update bool
	change func(T)
}

// valid is a manifest at the border of a rule, which the API server must take.
type valid[T client.Object] struct {
	name   string
	before func(T)
	update bool
	change func(T)
}

func refuse[T client.Object](t *testing.T, base func() T, breaches []breach[T]) {
	t.Helper()
	control := kube.Start(t)
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			err := write(t, control, base, b.before, b.update, b.change)
			require.Error(t, err)
			require.Contains(t, plain(err.Error()), b.message)
			// Arrays are shown with an index, the CRD's nesting with "[]".
			for part := range strings.SplitSeq(b.path, "[]") {
				require.Contains(t, err.Error(), strings.TrimPrefix(part, "."))
			}
		})
	}
}

func accept[T client.Object](t *testing.T, base func() T, manifests []valid[T]) {
	t.Helper()
	control := kube.Start(t)
	for _, o := range manifests {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, write(t, control, base, o.before, o.update, o.change))
		})
	}
}

// write creates the object, and updates it where that is asked for.
func write[T client.Object](t *testing.T, control *kube.ControlPlane, base func() T, before func(T), update bool, change func(T)) error {
	t.Helper()
	object := base()
	object.SetNamespace(control.Namespace(t))
	if before == nil && !update {
		change(object)
		return control.Client.Create(t.Context(), object)
	}
	if before != nil {
		before(object)
	}
	require.NoError(t, control.Client.Create(t.Context(), object))
	change(object)
	return control.Client.Update(t.Context(), object)
}

// plain undoes the quoting of a message that stands in another.
func plain(message string) string { return strings.ReplaceAll(message, `\"`, `"`) }

// named is a list of n distinct names.
func named[T ~string](n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = T(fmt.Sprintf("name-%d", i))
	}
	return out
}
