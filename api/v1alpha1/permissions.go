// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// Access is a verb on a resource of this group, as RBAC knows it.
//
// +kubebuilder:object:generate=false
type Access struct{ Verb, Resource string }

// Level is a role of project members. Each level includes the level before it.
type Level string

// Levels of project members, named as the cluster roles of Kubernetes that they extend.
const (
	LevelView  Level = "view"
	LevelEdit  Level = "edit"
	LevelAdmin Level = "admin"
)

// Levels lists all levels, the lowest first.
func Levels() []Level { return []Level{LevelView, LevelEdit, LevelAdmin} }

// permissionRule states the access that the owner of a key needs in the project's namespace,
// and the lowest level that has it.
//
// +kubebuilder:object:generate=false
type permissionRule struct {
	Access
	level Level
}

// permissions is the table of all permissions. `make generate` derives config/rbac/users.yaml
// and docs/reference/permissions.md from it. A resource without a kind is virtual: only the
// REST API asks for it.
var permissions = map[Permission]permissionRule{
	"environments.view":    {Access{"get", "environments"}, LevelView},
	"environments.create":  {Access{"create", "environments"}, LevelEdit},
	"environments.update":  {Access{"update", "environments"}, LevelEdit},
	"environments.delete":  {Access{"delete", "environments"}, LevelEdit},
	"agents.view":          {Access{"get", "agents"}, LevelView},
	"deployments.view":     {Access{"get", "deployments"}, LevelView},
	"deployments.create":   {Access{"create", "deployments"}, LevelEdit},
	"deployments.test":     {Access{"test", "deployments"}, LevelView},
	"deployments.cancel":   {Access{"cancel", "deployments"}, LevelEdit},
	"deployments.activate": {Access{"activate", "deployments"}, LevelEdit},
	"deployments.redeploy": {Access{"redeploy", "deployments"}, LevelEdit},
	"deployments.override": {Access{"override", "deployments"}, LevelEdit},
	"connectors.view":      {Access{"get", "connectors"}, LevelView},
	"connectors.create":    {Access{"create", "connectors"}, LevelEdit},
	"connectors.update":    {Access{"update", "connectors"}, LevelEdit},
	"connectors.delete":    {Access{"delete", "connectors"}, LevelEdit},
	"connectors.link":      {Access{"create", "connectorlinks"}, LevelEdit},
	"runs.view":            {Access{"get", "runs"}, LevelView},
	"runs.cancel":          {Access{"cancel", "runs"}, LevelEdit},
	"runs.delete":          {Access{"delete", "runs"}, LevelEdit},
	"variables.view":       {Access{"get", "variables"}, LevelView},
	"variables.create":     {Access{"create", "variables"}, LevelEdit},
	"variables.update":     {Access{"update", "variables"}, LevelEdit},
	"variables.delete":     {Access{"delete", "variables"}, LevelEdit},
	"retrieval.view":       {Access{"get", "retrieval"}, LevelView},
	"retrieval.create":     {Access{"create", "retrieval"}, LevelEdit},
	"retrieval.delete":     {Access{"delete", "retrieval"}, LevelEdit},
	"approvals.view":       {Access{"get", "approvals"}, LevelView},
	"approvals.decide":     {Access{"update", "approvals"}, LevelEdit},
	"judges.view":          {Access{"get", "judges"}, LevelView},
	"judges.update":        {Access{"update", "judges"}, LevelEdit},
	"budgets.view":         {Access{"get", "budgets"}, LevelView},
	"budgets.update":       {Access{"update", "budgets"}, LevelAdmin},
	"audit_logs.view":      {Access{"get", "auditlogs"}, LevelAdmin},
}

// Permissions lists all permissions by name.
func Permissions() []Permission { return slices.Sorted(maps.Keys(permissions)) }

// Access returns the access that the permission stands for, and false for an unknown permission.
func (p Permission) Access() (Access, bool) {
	rule, known := permissions[p]
	return rule.Access, known
}

// Area returns the part of the permission before its action, such as runs.
func (p Permission) Area() string {
	area, _, _ := strings.Cut(string(p), ".")
	return area
}

// Level returns the lowest level that has the permission, and "" for an unknown permission.
func (p Permission) Level() Level { return permissions[p].level }
