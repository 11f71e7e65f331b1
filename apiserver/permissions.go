// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// review is one question to Kubernetes, as the cache knows it.
type review struct {
	user, groups, namespace string
	v1alpha1.Access
}

// may says whether the key and its owner both have a permission.
func (s *Server) may(ctx context.Context, c *caller, permission string) (bool, error) {
	wanted, known := v1alpha1.Permission(permission).Access()
	if !known {
		return false, nil
	}
	spec := c.key.Spec
	if spec.Access == v1alpha1.AccessSelected && !slices.Contains(spec.Permissions, v1alpha1.Permission(permission)) {
		return false, nil
	}
	owner := c.key.Subject()
	question := review{user: owner.User, groups: fmt.Sprintf("%q", owner.Groups), namespace: c.namespace, Access: wanted}
	if allowed, ok := s.reviews.Get(question); ok {
		return allowed, nil
	}
	sar := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace}, Spec: authorizationv1.SubjectAccessReviewSpec{
		User: owner.User, Groups: owner.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.namespace, Verb: wanted.Verb,
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: wanted.Resource,
		},
	}}
	if err := s.client.Create(ctx, sar); err != nil {
		return false, fmt.Errorf("reviewing the access of %q: %w", owner.User, err)
	}
	s.reviews.Put(question, sar.Status.Allowed)
	return sar.Status.Allowed, nil
}

// allowed lists all permissions of the caller, by name.
func (s *Server) allowed(ctx context.Context, c *caller) ([]Permission, error) {
	names := v1alpha1.Permissions()
	has := make([]bool, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, name := range names {
		group.Go(func() (err error) {
			has[i], err = s.may(ctx, c, string(name))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := []Permission{}
	for i, name := range names {
		if has[i] {
			out = append(out, Permission(name))
		}
	}
	return out, nil
}

// reaches says whether the key may see an environment.
func (c *caller) reaches(environment string) bool {
	return c.reachesAll() ||
		slices.Contains(c.key.Spec.Environments, v1alpha1.EnvironmentName(environment))
}

// areasWithoutEndpoint are the areas of permissions that no endpoint of this release asks for, by name.
func areasWithoutEndpoint() (areas []string) {
	used := map[string]bool{}
	for _, r := range routes {
		for _, g := range r.needs {
			used[permissionArea(g.permission)] = used[permissionArea(g.permission)] || r.mount != nil
		}
	}
	for _, p := range v1alpha1.Permissions() {
		if area := permissionArea(string(p)); !used[area] && !slices.Contains(areas, area) {
			areas = append(areas, area)
		}
	}
	return areas
}

// permissionArea is the part of a permission before the action, such as runs.
func permissionArea(permission string) string {
	area, _, _ := strings.Cut(permission, ".")
	return area
}

// listAnd lists words as a sentence does: a, b and c.
func listAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
