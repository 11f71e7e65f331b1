// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// levels are the names of the roles. Each role includes the previous one.
var levels = []string{"view", "edit", "admin"}

// A role grants each permission from the level of the permission upward.
func TestUserRoles_CoverAllPermissions(t *testing.T) {
	t.Parallel()
	for _, permission := range v1alpha1.Permissions() {
		access, _ := permission.Access()
		least := slices.Index(levels, string(permission.Level()))
		require.NotEqual(t, -1, least, "%s has no level", permission)
		for i, level := range levels {
			has := grants(named(t, "agentplatform-"+level).rules, access.Verb, access.Resource)
			require.Equal(t, i >= least, has, "%s (%s %s) by %s", permission, access.Verb, access.Resource, level)
		}
	}
}

// A role grants the verbs on each kind from the level of the kind upward.
func TestUserRoles_CoverAllKinds(t *testing.T) {
	t.Parallel()
	write := []string{"create", "update", "patch", "delete", "deletecollection"}
	for _, resource := range []string{"projects", "environments", "deployments", "connectors", "connectorlinks", "apikeys"} {
		for i, level := range levels {
			rules := named(t, "agentplatform-"+level).rules
			for _, verb := range []string{"get", "list", "watch"} {
				require.True(t, grants(rules, verb, resource), "%s %s by %s", verb, resource, level)
			}
			for _, verb := range write {
				least := 1
				// Only administrators write the project and delete keys. Editors revoke keys.
				if resource == "projects" || resource == "apikeys" && verb[0] == 'd' {
					least = 2
				}
				require.Equal(t, i >= least, grants(rules, verb, resource), "%s %s by %s", verb, resource, level)
			}
			require.False(t, grants(rules, "patch", resource+"/status"), "the status is the platform's")
		}
	}
}

func TestUserRoles_AggregateToClusterRoles(t *testing.T) {
	t.Parallel()
	aggregating := map[string]string{}
	for _, r := range rolesOf(t, kube.Manifests(t, "config/rbac")) {
		for _, level := range levels {
			if r.labels["rbac.authorization.k8s.io/aggregate-to-"+level] == "true" {
				aggregating[level] += r.name
			}
		}
		for _, rule := range r.rules {
			if slices.Contains([]string{"agentplatform-view", "agentplatform-edit", "agentplatform-admin"}, r.name) {
				require.Equal(t, []string{v1alpha1.GroupVersion.Group}, rule.APIGroups, r.name)
			}
		}
	}
	require.Equal(t, map[string]string{
		"view": "agentplatform-view", "edit": "agentplatform-edit", "admin": "agentplatform-admin",
	}, aggregating)
}

// Each level holds the one before it, for they are bound by themselves too.
func TestUserRoles_IncludeLowerLevels(t *testing.T) {
	t.Parallel()
	for i := 1; i < len(levels); i++ {
		rules := named(t, "agentplatform-"+levels[i]).rules
		for _, rule := range named(t, "agentplatform-"+levels[i-1]).rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					require.True(t, grants(rules, verb, resource), "%s %s by %s", verb, resource, levels[i])
				}
			}
		}
	}
}

// grants says whether rules allow a verb on a resource of agentplatform.dev.
func grants(rules []rbacv1.PolicyRule, verb, resource string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, v1alpha1.GroupVersion.Group) && len(r.ResourceNames) == 0 &&
			slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}
