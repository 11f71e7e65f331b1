// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func TestOwner_SubjectOfAccessReview(t *testing.T) {
	t.Parallel()
	accountOf := func(namespace string) []string {
		return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	for name, c := range map[string]struct {
		owner v1alpha1.KeyOwner
		want  v1alpha1.Subject
	}{
		"user": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
			v1alpha1.Subject{User: "anna", Groups: []string{"system:authenticated"}},
		},
		"groups of Kubernetes itself": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna", Groups: []string{"system:masters", "dev", "system:authenticated", "system:nodes"}},
			v1alpha1.Subject{User: "anna", Groups: []string{"dev", "system:authenticated"}},
		},
		"service account": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "ci"},
			v1alpha1.Subject{User: "system:serviceaccount:shop:ci", Groups: accountOf("shop")},
		},
		"service account with groups": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "ci", Groups: []string{"dev", "system:masters"}},
			v1alpha1.Subject{User: "system:serviceaccount:shop:ci", Groups: accountOf("shop")},
		},
		"service account of another namespace": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "system:serviceaccount:argocd:deployer", Groups: []string{"dev"}},
			v1alpha1.Subject{User: "system:serviceaccount:argocd:deployer", Groups: accountOf("argocd")},
		},
		"no service account": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "system:serviceaccount:kube-system:a:b"},
			v1alpha1.Subject{User: "system:serviceaccount:kube-system:a:b", Groups: []string{"system:authenticated"}},
		},
		"no service account's name": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "a:b", Groups: []string{"system:masters"}},
			v1alpha1.Subject{User: "system:serviceaccount:shop:a:b", Groups: []string{"system:authenticated"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := newAPIKey()
			key.Namespace, key.Spec.Owner = "shop", c.owner
			require.Equal(t, c.want, key.Subject())
		})
	}
}

func TestAPIKey_Expiry(t *testing.T) {
	t.Parallel()
	made := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	in := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: made.Add(d)} }
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		groups  []string
		expires *metav1.Time
		want    *metav1.Time
	}{
		"never":                     {},
		"as asked":                  {expires: in(900 * day), want: in(900 * day)},
		"groups":                    {groups: []string{"dev"}, want: in(365 * day)},
		"groups, asked for less":    {groups: []string{"dev"}, expires: in(day), want: in(day)},
		"groups, asked for more":    {groups: []string{"dev"}, expires: in(366 * day), want: in(365 * day)},
		"groups that do not count":  {groups: []string{"system:masters"}, want: in(365 * day)},
		"groups, asked for as much": {groups: []string{"dev"}, expires: in(365 * day), want: in(365 * day)},
	} {
		t.Run(name, func(t *testing.T) {
			key := newAPIKey()
			key.CreationTimestamp = made
			key.Spec.Owner = v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna", Groups: c.groups}
			key.Spec.ExpiresAt = c.expires
			require.Equal(t, c.want, key.EndsAt())
			if c.want == nil {
				require.False(t, key.Ended(made.AddDate(100, 0, 0)))
				return
			}
			require.False(t, key.Ended(c.want.Add(-time.Nanosecond)))
			require.True(t, key.Ended(c.want.Time))
		})
	}
	revoked := newAPIKey()
	revoked.Spec.Revoked = true
	require.True(t, revoked.Ended(made.Time))
}

func TestAPIKey_NamesIneffectivePermissions(t *testing.T) {
	t.Parallel()
	message := func(k *v1alpha1.APIKey) string { return k.Status.Condition(v1alpha1.ConditionReady).Message }
	key := newAPIKey()
	key.MarkInForce()
	require.Equal(t, "in effect", message(key))

	key.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	key.Spec.Owner = v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna", Groups: []string{"system:masters", "dev", "system:authenticated"}}
	key.MarkInForce()
	require.True(t, v1alpha1.IsReady(key))
	require.Equal(t, "in effect until 2027-01-02T03:04:05Z, because a key with owner.groups is valid for a year; "+
		"without the groups of Kubernetes: system:masters", message(key))
	key.MarkExpired()
	require.Contains(t, message(key), "a year after its creation")

	key.Spec.Permissions = []v1alpha1.Permission{"environments.view", "environment.veiw"}
	require.Equal(t, []v1alpha1.Permission{"environment.veiw"}, key.UnknownPermissions())
	key.MarkUnknownPermissions(key.UnknownPermissions())
	require.True(t, v1alpha1.IsStalled(key))
	require.Contains(t, message(key), "unknown permission environment.veiw")
	require.NotContains(t, message(key), "environments.view")
}

func TestPermissions_AreAreaAndAction(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, v1alpha1.Permissions())
	for _, p := range v1alpha1.Permissions() {
		require.Regexp(t, `^[a-z][a-z_]*[.][a-z][a-z_]*$`, p)
		access, known := p.Access()
		require.True(t, known)
		require.NotEmpty(t, access.Verb)
		require.NotEmpty(t, access.Resource)
	}
	_, known := v1alpha1.Permission("environment.veiw").Access()
	require.False(t, known)
}
