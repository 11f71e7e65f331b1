// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// run executes agentctl and returns what it prints.
func run(t *testing.T, args ...string) (out, messages string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRootCommand("agentctl")
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// Create creates the object with the hash of the key, and prints only the key on standard output.
func TestAPIKeyCreate_CreatesTheObject(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	namespace := control.Namespace(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, control.Kubeconfig(), 0o600))

	staging := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "staging"}}
	require.NoError(t, control.Client.Create(t.Context(), staging))
	out, messages, err := run(t, "apikey", "create", "ci", "-n", namespace, "--kubeconfig", kubeconfig,
		"--permissions", "environments.view,runs.view", "--environments", "staging", "--expires", "1h")
	require.NoError(t, err)
	key, err := keys.Parse(strings.TrimSpace(out))
	require.NoError(t, err, "standard output is the key alone")

	object := &v1alpha1.APIKey{}
	require.NoError(t, control.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ci"}, object))
	require.True(t, key.Matches(object.Spec.Hash))
	require.Equal(t, key.ID(), object.Spec.KeyID)
	require.Equal(t, v1alpha1.AccessSelected, object.Spec.Access)
	require.Len(t, object.Spec.Permissions, 2)
	require.Equal(t, []v1alpha1.EnvironmentName{"staging"}, object.Spec.Environments)
	require.NotNil(t, object.Spec.ExpiresAt)
	require.Equal(t, v1alpha1.OwnerUser, object.Spec.Owner.Kind)
	require.NotEmpty(t, object.Spec.Owner.Name, "whoever asks")
	require.Contains(t, messages, "kubectl -n "+namespace+" create rolebinding ci --clusterrole=agentplatform-admin --user=", "the rights of system:masters are none of a key's")

	_, messages, err = run(t, "apikey", "create", "berta", "-n", namespace, "--kubeconfig", kubeconfig, "--owner-user", "berta")
	require.NoError(t, err)
	require.NotContains(t, messages, "rolebinding", "of others nothing is known")
	_, _, err = run(t, "apikey", "create", "ci", "-n", namespace, "--kubeconfig", kubeconfig)
	require.ErrorContains(t, err, "already exists")

	_, _, err = run(t, "apikey", "create", "typo", "-n", namespace, "--kubeconfig", kubeconfig, "--environments", "stagign")
	require.ErrorContains(t, err, `there is no environment "stagign"; there are: staging`)
	require.True(t, apierrors.IsNotFound(control.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "typo"}, object)), "nothing is made")
}

// TestEnvironmentNamed_FindsByWhatListsShow: and a name counts before what others are called.
func TestEnvironmentNamed_FindsByWhatListsShow(t *testing.T) {
	t.Parallel()
	of := func(name, title, slug, id string) v1alpha1.Environment {
		return v1alpha1.Environment{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.EnvironmentSpec{DisplayName: v1alpha1.DisplayName(title)},
			Status: v1alpha1.EnvironmentStatus{ObjectStatus: v1alpha1.ObjectStatus{ID: id}, Slug: slug},
		}
	}
	all := []v1alpha1.Environment{
		of("a-staging-mifso", "Totally New", "totally-new", "0b6a4f0e-3d55-4a5f-9d52-6a6f4b1f0c11"),
		of("production", "", "production", "7c0e7ba3-90ad-4d9d-a8f1-6ef0c7f5a9d2"),
		of("other", "production", "production-2", "9f1d2c3b-4a5e-4f60-8b7a-1c2d3e4f5a6b"),
		of("twin-1", "Twin", "twin", ""), of("twin-2", "Twin", "", ""),
	}
	for _, row := range []struct{ name, wanted, want, problem string }{
		{"name", "a-staging-mifso", "a-staging-mifso", ""},
		{"slug", "totally-new", "a-staging-mifso", ""},
		{"name for people", "Totally New", "a-staging-mifso", ""},
		{"id", "0B6A4F0E-3D55-4A5F-9D52-6A6F4B1F0C11", "a-staging-mifso", ""},
		{"name before name for people", "production", "production", ""},
		{"several", "Twin", "", "ambiguous"},
		{"none", "nowhere", "", "there is no environment"},
		{"nothing", "", "", "there is no environment"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := findEnvironmentObject(row.wanted, all)
			require.Equal(t, row.want, got)
			if row.problem != "" {
				require.ErrorContains(t, err, row.problem)
			}
		})
	}
}

// A dry run prints the manifest and needs no cluster.
func TestAPIKeyCreate_PrintsTheManifest(t *testing.T) {
	t.Parallel()
	out, messages, err := run(t, "apikey", "create", "ci", "-n", "shop", "--owner-service-account", "ci",
		"--kubeconfig", filepath.Join(t.TempDir(), "none"), "--dry-run=client", "-o", "yaml")
	require.NoError(t, err)
	object := &v1alpha1.APIKey{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), object))
	lines := strings.Split(strings.TrimSpace(messages), "\n")
	key, err := keys.Parse(lines[len(lines)-1])
	require.NoError(t, err)
	require.True(t, key.Matches(object.Spec.Hash))
	require.NotContains(t, out, key.String())
	require.Equal(t, v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "ci"}, object.Spec.Owner)
	require.Equal(t, v1alpha1.AccessAll, object.Spec.Access)
}

// A dry run does not contact the cluster, so it cannot tell a slug from a name. It accepts names of objects, and warns about it.
func TestAPIKeyCreate_DryRunTakesNamesOfEnvironments(t *testing.T) {
	t.Parallel()
	const note = "--environments were not looked up"
	for name, row := range map[string]struct {
		flags   []string
		want    []v1alpha1.EnvironmentName
		note    bool
		problem string
	}{
		"names":              {flags: []string{"--environments", "production,totally-new"}, want: []v1alpha1.EnvironmentName{"production", "totally-new"}, note: true},
		"none":               {flags: []string{"--environments", ""}},
		"all":                {},
		"quiet":              {flags: []string{"--environments", "production", "--quiet"}, want: []v1alpha1.EnvironmentName{"production"}},
		"name for people":    {flags: []string{"--environments", "Totally New"}, problem: `--environments: "Totally New" is not a name of an Environment object`},
		"upper-case ID":      {flags: []string{"--environments", "0B6A4F0E-3D55-4A5F-9D52-6A6F4B1F0C11"}, problem: "is an ID"},
		"lower-case ID":      {flags: []string{"--environments", "0b6a4f0e-3d55-4a5f-9d52-6a6f4b1f0c11"}, problem: "is an ID"},
		"nothing in between": {flags: []string{"--environments", "a,,b"}, problem: `--environments: "" is not a name of an Environment object`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{
				"apikey", "create", "ci", "-n", "shop", "--owner-service-account", "ci",
				"--kubeconfig", filepath.Join(t.TempDir(), "none"), "--dry-run=client",
			}, row.flags...)
			out, messages, err := run(t, args...)
			if row.problem != "" {
				require.ErrorContains(t, err, row.problem)
				require.ErrorContains(t, err, "use its metadata.name, or leave out --dry-run")
				require.Empty(t, out)
				return
			}
			require.NoError(t, err)
			object := &v1alpha1.APIKey{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(out), object))
			require.Equal(t, row.want, object.Spec.Environments)
			require.Equal(t, row.note, strings.Contains(messages, note), messages)
		})
	}
}

// Groups of the system do not count for a key.
func TestUserOwner_KeepsGroupsThatCount(t *testing.T) {
	t.Parallel()
	owner, err := userOwner(authenticationv1.UserInfo{Username: "anna", Groups: []string{"system:masters", "dev", "system:authenticated"}})
	require.NoError(t, err)
	require.Equal(t, v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna", Groups: []string{"dev"}}, owner)
	_, err = userOwner(authenticationv1.UserInfo{Username: "anna", Groups: strings.Fields(strings.Repeat("dev ", 17))})
	require.ErrorContains(t, err, "--owner-group")
}

// The expiry is a duration or a time in the future.
func TestParseExpiry_AcceptsDurationsAndTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at, err := parseExpiry("720h", now)
	require.NoError(t, err)
	require.Equal(t, now.Add(720*time.Hour), at.Time)
	at, err = parseExpiry("2027-01-31T00:00:00Z", now)
	require.NoError(t, err)
	require.Equal(t, 2027, at.Year())
	for _, wrong := range []string{"-1h", "tomorrow", "2020-01-01T00:00:00Z"} {
		_, err = parseExpiry(wrong, now)
		require.ErrorContains(t, err, "--expires")
	}
}
