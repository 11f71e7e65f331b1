// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// These ids must never change: webhook URLs hold them. They were computed
// elsewhere, by Python's uuid.uuid5(project, "Kind/name").
func TestProjectObjectID_NeverChanges(t *testing.T) {
	t.Parallel()
	const project = "7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10"
	for _, c := range []struct{ project, kind, name, want string }{
		{project, "Environment", "production", "91ecf001-f31e-5709-8fbc-f5e3ab37ef2f"},
		{project, "Deployment", "production-1", "28623ccb-65eb-53ce-9b18-80e9c90551e7"},
		{project, "Connector", "orders", "b47f6196-0cbb-5f60-9c40-f6e3b25c8123"},
		{project, "Connector", "production.orders", "5ddfd7a8-d52d-5467-b493-bef93c0d7cce"},
		{project, "ConnectorLink", "orders", "5a3245e6-a2a4-5c66-a705-5ef93afa76c5"},
		{project, "APIKey", "ci", "4a378152-1c97-522b-8b66-f48e6b026d25"},
		{"0c2f6c4e-1f0b-4b8e-8a30-5b6a2c1d9e77", "Connector", "orders", "efc66566-91da-57ca-b321-80131cb31c58"},
	} {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			got := v1alpha1.ProjectObjectID(uuid.MustParse(c.project), c.kind, c.name)
			require.Equal(t, c.want, got.String(), "%s/%s", c.kind, c.name)
			require.EqualValues(t, 5, got.Version())
		})
	}
}

// Computed in the same way: uuid.uuid5(platform, "namespace").
func TestProjectID_NeverChanges(t *testing.T) {
	t.Parallel()
	platform := uuid.MustParse("7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10")
	require.Equal(t, "9eb6e6cc-39d0-5d8e-9c1b-3a89610111a4", v1alpha1.ProjectID(platform, "shop").String())
	require.NotEqual(t, v1alpha1.ProjectID(platform, "shop"), v1alpha1.ProjectID(platform, "shop2"))
	require.NotEqual(t, v1alpha1.ProjectID(platform, "shop"), v1alpha1.ProjectID(uuid.New(), "shop"))
}

func TestObjectID_DependsOnKindAndName(t *testing.T) {
	t.Parallel()
	project := uuid.MustParse(string(someID))
	connector := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "orders"}}

	derived, err := v1alpha1.ObjectID(project, connector)
	require.NoError(t, err)
	require.Equal(t, v1alpha1.ProjectObjectID(project, "Connector", "orders"), derived)

	connector.Spec.ID = anotherID
	explicit, err := v1alpha1.ObjectID(project, connector)
	require.NoError(t, err)
	require.Equal(t, string(anotherID), explicit.String())

	own, err := v1alpha1.ObjectID(project, &v1alpha1.Project{})
	require.NoError(t, err)
	require.Equal(t, project, own)
}

func TestObjectID_OfInvalidNames(t *testing.T) {
	t.Parallel()
	_, err := v1alpha1.ObjectID(uuid.New(), &v1alpha1.Environment{Spec: v1alpha1.EnvironmentSpec{ID: "none"}})
	require.ErrorContains(t, err, "spec.id of Environment")
}

// Callers have the address in their configuration, and nobody can tell them another.
func TestWebhookURL_NeverChanges(t *testing.T) {
	t.Parallel()
	project, connector := uuid.MustParse("7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10"), uuid.MustParse("B47F6196-0cbb-5f60-9c40-f6e3b25c8123")
	for _, gateway := range []string{"https://hooks.example.com/base", "https://hooks.example.com/base/"} {
		require.Equal(t, "https://hooks.example.com/base/hooks/7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10/b47f6196-0cbb-5f60-9c40-f6e3b25c8123",
			v1alpha1.WebhookURL(gateway, project, connector))
		require.Equal(t, "https://hooks.example.com/base/git/7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10", v1alpha1.GitWebhookURL(gateway, project))
	}
}
