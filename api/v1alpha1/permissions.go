// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
)

// Access is a verb on a resource of this group, as RBAC knows it.
//
// +kubebuilder:object:generate=false
type Access struct{ Verb, Resource string }

// permissions is the whole table: what an owner must be allowed in the project's
// namespace. What has no kind is a virtual resource of the group.
var permissions = map[Permission]Access{
	"environments.view":    {"get", "environments"},
	"environments.create":  {"create", "environments"},
	"environments.update":  {"update", "environments"},
	"environments.delete":  {"delete", "environments"},
	"agents.view":          {"get", "agents"},
	"deployments.view":     {"get", "deployments"},
	"deployments.create":   {"create", "deployments"},
	"deployments.test":     {"test", "deployments"},
	"deployments.cancel":   {"cancel", "deployments"},
	"deployments.activate": {"activate", "deployments"},
	"deployments.redeploy": {"redeploy", "deployments"},
	"deployments.override": {"override", "deployments"},
	"connectors.view":      {"get", "connectors"},
	"connectors.create":    {"create", "connectors"},
	"connectors.update":    {"update", "connectors"},
	"connectors.delete":    {"delete", "connectors"},
	"connectors.link":      {"create", "connectorlinks"},
	"runs.view":            {"get", "runs"},
	"runs.cancel":          {"cancel", "runs"},
	"runs.delete":          {"delete", "runs"},
	"variables.view":       {"get", "variables"},
	"variables.create":     {"create", "variables"},
	"variables.update":     {"update", "variables"},
	"variables.delete":     {"delete", "variables"},
	"retrieval.view":       {"get", "retrieval"},
	"retrieval.create":     {"create", "retrieval"},
	"retrieval.delete":     {"delete", "retrieval"},
	"approvals.view":       {"get", "approvals"},
	"approvals.decide":     {"update", "approvals"},
	"judges.view":          {"get", "judges"},
	"judges.update":        {"update", "judges"},
	"budgets.view":         {"get", "budgets"},
	"budgets.update":       {"update", "budgets"},
	"audit_logs.view":      {"get", "auditlogs"},
}

// Permissions are all permissions that there are, by name.
func Permissions() []Permission { return slices.Sorted(maps.Keys(permissions)) }

// Access is what an owner must be allowed for the permission; false where there
// is no such permission.
func (p Permission) Access() (Access, bool) {
	access, known := permissions[p]
	return access, known
}
