// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// objectRule grants verbs on kinds from a level upward.
type objectRule struct {
	level     v1alpha1.Level
	resources []string
	verbs     []string
}

// objectRules are the access to objects, which the REST API needs no permission for. An editor
// revokes keys instead of deleting them. config/admission lets editors write only their own keys.
var objectRules = []objectRule{
	{v1alpha1.LevelView, []string{"projects", "environments", "deployments", "connectors", "connectorlinks", "apikeys"}, []string{"get", "list", "watch"}},
	{v1alpha1.LevelEdit, []string{"environments", "deployments", "connectors", "connectorlinks"}, []string{"create", "update", "patch", "delete", "deletecollection"}},
	{v1alpha1.LevelEdit, []string{"environments/scale"}, []string{"get", "update", "patch"}},
	{v1alpha1.LevelEdit, []string{"apikeys"}, []string{"create", "update", "patch"}},
	{v1alpha1.LevelAdmin, []string{"projects"}, []string{"create", "update", "patch", "delete", "deletecollection"}},
	{v1alpha1.LevelAdmin, []string{"apikeys"}, []string{"delete", "deletecollection"}},
}

const rolesStart = `# SPDX-License-Identifier: Apache-2.0
# Access of project members and API keys to a project's namespace. hack/permissions generates
# this file from api/v1alpha1/permissions.go. Each role includes the rules of the role before
# it and extends the cluster role of Kubernetes that its label names. Resources without a kind
# (agents, runs, variables, …) and verbs that Kubernetes does not know belong to the REST API.
`

const roleStart = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: agentplatform-%[1]s
  labels:
    app.kubernetes.io/name: agentplatform
    rbac.authorization.k8s.io/aggregate-to-%[1]s: "true"
rules:
`

// renderRoles renders the cluster role of each level.
func renderRoles() []byte {
	var out bytes.Buffer
	out.WriteString(rolesStart)
	for i, level := range v1alpha1.Levels() {
		if i > 0 {
			out.WriteString("---\n")
		}
		fmt.Fprintf(&out, roleStart, level)
		byVerbs := map[string][]string{}
		verbs := verbsUpTo(level)
		for _, resource := range slices.Sorted(maps.Keys(verbs)) {
			key := strings.Join(verbs[resource], ", ")
			byVerbs[key] = append(byVerbs[key], resource)
		}
		for _, verbs := range slices.SortedFunc(maps.Keys(byVerbs), func(a, b string) int { return slices.Compare(byVerbs[a], byVerbs[b]) }) {
			fmt.Fprintf(&out, "- apiGroups: [%s]\n  resources: [%s]\n  verbs: [%s]\n",
				v1alpha1.GroupVersion.Group, strings.Join(byVerbs[verbs], ", "), verbs)
		}
	}
	return out.Bytes()
}

// verbsUpTo returns the verbs that a level and the levels below it have on each resource.
func verbsUpTo(level v1alpha1.Level) map[string][]string {
	included := v1alpha1.Levels()[:slices.Index(v1alpha1.Levels(), level)+1]
	verbs := map[string][]string{}
	add := func(resource, verb string) {
		if !slices.Contains(verbs[resource], verb) {
			verbs[resource] = append(verbs[resource], verb)
		}
	}
	for _, rule := range objectRules {
		for _, resource := range rule.resources {
			for _, verb := range rule.verbs {
				if slices.Contains(included, rule.level) {
					add(resource, verb)
				}
			}
		}
	}
	for _, permission := range v1alpha1.Permissions() {
		if access, _ := permission.Access(); slices.Contains(included, permission.Level()) {
			add(access.Resource, access.Verb)
		}
	}
	return verbs
}
