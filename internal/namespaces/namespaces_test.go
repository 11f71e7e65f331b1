// SPDX-License-Identifier: Apache-2.0

package namespaces_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/internal/namespaces"
)

// cluster has a Secret in each namespace and records requests.
type cluster struct {
	client.Client
	asked []string
}

func (c *cluster) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	c.asked = append(c.asked, namespace)
	var items []corev1.Secret
	for _, in := range []string{"a", "b", "c"} {
		if namespace == "" || namespace == in {
			items = append(items, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "s"}})
		}
	}
	list.(*corev1.SecretList).Items = items
	return nil
}

func TestReader_ListsOnlyItsNamespaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set         namespaces.Set
		opts        []client.ListOption
		asked, want []string
	}{
		"all":            {asked: []string{""}, want: []string{"a", "b", "c"}},
		"some":           {set: namespaces.Set{"a", "c"}, asked: []string{"a", "c"}, want: []string{"a", "c"}},
		"one of them":    {set: namespaces.Set{"a", "c"}, opts: []client.ListOption{client.InNamespace("c")}, asked: []string{"c"}, want: []string{"c"}},
		"one that is no": {set: namespaces.Set{"x"}, asked: []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, list := range map[string]func(*cluster) func(context.Context, client.ObjectList, ...client.ListOption) error{
				"client": func(k *cluster) func(context.Context, client.ObjectList, ...client.ListOption) error {
					return c.set.Client(k).List
				},
				"reader": func(k *cluster) func(context.Context, client.ObjectList, ...client.ListOption) error {
					return c.set.Reader(k).List
				},
			} {
				t.Run(kind, func(t *testing.T) {
					k, secrets := &cluster{}, &corev1.SecretList{}
					require.NoError(t, list(k)(t.Context(), secrets, c.opts...))
					require.Equal(t, c.asked, k.asked, "%s, %s", name, kind)
					var got []string
					for _, s := range secrets.Items {
						got = append(got, s.Namespace)
					}
					require.Equal(t, c.want, got, "%s, %s", name, kind)
				})
			}
		})
	}
}

func TestReader_RejectsPaging(t *testing.T) {
	t.Parallel()
	err := namespaces.Set{"a", "b"}.Client(&cluster{}).List(t.Context(), &corev1.SecretList{}, client.Continue("x"))
	require.ErrorContains(t, err, "paging")
}

func TestNew_ValidatesNames(t *testing.T) {
	t.Parallel()
	set, err := namespaces.New([]string{"b", "a", "b"})
	require.NoError(t, err)
	require.Equal(t, namespaces.Set{"a", "b"}, set)
	require.True(t, set.Has("a"))
	require.False(t, set.Has("c"))
	require.True(t, namespaces.Set{}.Has("c"))
	_, err = namespaces.New([]string{"a", "*"})
	require.ErrorContains(t, err, `--watch-namespaces: "*"`)

	opts := cache.Options{}
	namespaces.Set{}.Limit(&opts)
	require.Nil(t, opts.DefaultNamespaces)
	set.Limit(&opts)
	require.Len(t, opts.DefaultNamespaces, 2)
	require.True(t, slices.Contains(set, "b"))
}

// Missing permissions are detected. Any other error is returned.
func TestReadable_SkipsForbiddenNamespaces(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no RoleBinding"))
	away := errors.New("away")
	failing := map[string]error{"b": forbidden}
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ofPods := list.(*corev1.PodList); ofPods {
				return forbidden
			}
			return failing[(&client.ListOptions{}).ApplyOptions(opts).Namespace]
		},
	})
	readable, denied, err := namespaces.Set{"a", "b", "c"}.Readable(t.Context(), c, &corev1.SecretList{})
	require.NoError(t, err)
	require.Equal(t, namespaces.Set{"a", "c"}, readable)
	require.Equal(t, namespaces.Set{"b"}, denied)

	readable, denied, err = namespaces.Set{"a"}.Readable(t.Context(), c, &corev1.SecretList{}, &corev1.PodList{})
	require.NoError(t, err)
	require.Empty(t, readable, "a namespace needs all permissions, because all watched kinds must be readable")
	require.Equal(t, namespaces.Set{"a"}, denied)

	failing["c"] = away
	_, _, err = namespaces.Set{"a", "b", "c"}.Readable(t.Context(), c, &corev1.SecretList{})
	require.ErrorIs(t, err, away)
	readable, denied, err = namespaces.Set{}.Readable(t.Context(), c, &corev1.SecretList{})
	require.NoError(t, err)
	require.Empty(t, append(readable, denied...))
}
