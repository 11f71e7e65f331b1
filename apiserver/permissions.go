// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// reviewCacheTime is how long Kubernetes' word about an owner holds.
const reviewCacheTime = 30 * time.Second

// reviewsAtOnce bounds the questions asked for one answer.
const reviewsAtOnce = 8

// access is a verb on a resource of agentplatform.dev, as RBAC knows it.
type access struct{ verb, resource string }

// permissions is the whole table: what an owner must be allowed in the
// project's namespace. What has no kind is a virtual resource of the group.
var permissions = map[string]access{
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

// review is one question to Kubernetes, as the cache knows it.
type review struct {
	user, groups, namespace string
	access
}

// may says whether the key and its owner both have a permission.
func (s *Server) may(ctx context.Context, c *caller, permission string) (bool, error) {
	wanted, known := permissions[permission]
	if !known {
		return false, nil
	}
	spec := c.key.Spec
	if spec.Access == v1alpha1.AccessSelected && !slices.Contains(spec.Permissions, v1alpha1.Permission(permission)) {
		return false, nil
	}
	user, groups := subject(c.key)
	question := review{user: user, groups: strings.Join(groups, "\n"), namespace: c.namespace, access: wanted}
	if allowed, ok := s.reviews.get(question); ok {
		return allowed, nil
	}
	sar := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.namespace, Verb: wanted.verb,
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: wanted.resource,
		},
	}}
	if err := s.client.Create(ctx, sar); err != nil {
		return false, fmt.Errorf("reviewing the access of %q: %w", user, err)
	}
	s.reviews.put(question, sar.Status.Allowed)
	return sar.Status.Allowed, nil
}

// subject is the key's owner as RBAC knows it, with the groups that Kubernetes
// itself gives.
func subject(key *v1alpha1.APIKey) (user string, groups []string) {
	owner := key.Spec.Owner
	groups = append(slices.Clone(owner.Groups), "system:authenticated")
	if owner.Kind != v1alpha1.OwnerServiceAccount {
		return owner.Name, groups
	}
	groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+key.Namespace)
	return "system:serviceaccount:" + key.Namespace + ":" + owner.Name, groups
}

// allowed lists all permissions of the caller, by name.
func (s *Server) allowed(ctx context.Context, c *caller) ([]string, error) {
	names := make([]string, 0, len(permissions))
	for name := range permissions {
		names = append(names, name)
	}
	slices.Sort(names)
	has := make([]bool, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, name := range names {
		group.Go(func() (err error) {
			has[i], err = s.may(ctx, c, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := []string{}
	for i, name := range names {
		if has[i] {
			out = append(out, name)
		}
	}
	return out, nil
}

// reaches says whether the key may see an environment.
func (c *caller) reaches(environment string) bool {
	return c.key.Spec.EnvironmentAccess != v1alpha1.AccessSelected ||
		slices.Contains(c.key.Spec.Environments, v1alpha1.EnvironmentName(environment))
}

// expired says whether the key's time is over.
func expired(at *metav1.Time, now time.Time) bool { return at != nil && !at.After(now) }
