// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// review is the cache key of an access review.
type review struct {
	user, groups, namespace string
	v1alpha1.Access
}

// HasPermission reports whether both the key and its owner have a permission.
func (s *Service) HasPermission(ctx context.Context, c *Caller, permission v1alpha1.Permission) (bool, error) {
	wanted, known := permission.Access()
	if !known {
		return false, nil
	}
	spec := c.Key.Spec
	if spec.Access == v1alpha1.AccessSelected && !slices.Contains(spec.Permissions, permission) {
		return false, nil
	}
	owner := c.Key.Subject()
	question := review{user: owner.User, groups: fmt.Sprintf("%q", owner.Groups), namespace: c.Namespace, Access: wanted}
	if allowed, ok := s.reviews.Get(question); ok {
		return allowed, nil
	}
	sar := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace}, Spec: authorizationv1.SubjectAccessReviewSpec{
		User: owner.User, Groups: owner.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.Namespace, Verb: wanted.Verb,
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: wanted.Resource,
		},
	}}
	if err := s.Client.Create(ctx, sar); err != nil {
		return false, fmt.Errorf("reviewing the access of %q: %w", owner.User, err)
	}
	s.reviews.Put(question, sar.Status.Allowed)
	return sar.Status.Allowed, nil
}

// Permissions lists all permissions of the caller, by name.
func (s *Service) Permissions(ctx context.Context, c *Caller) ([]Permission, error) {
	names := v1alpha1.Permissions()
	has := make([]bool, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, name := range names {
		group.Go(func() (err error) {
			has[i], err = s.HasPermission(ctx, c, name)
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

// Reaches reports whether the key reaches an environment.
func (c *Caller) Reaches(environment string) bool {
	return c.ReachesAll() ||
		slices.Contains(c.Key.Spec.Environments, v1alpha1.EnvironmentName(environment))
}

// unusedAreas returns the areas of permissions that no supported endpoint requires, by name.
func unusedAreas(endpoints []Endpoint) (areas []string) {
	used := map[string]bool{}
	for i := range endpoints {
		for _, p := range endpoints[i].Permissions {
			used[p.Permission.Area()] = used[p.Permission.Area()] || endpoints[i].IsSupported()
		}
	}
	for _, p := range v1alpha1.Permissions() {
		if area := p.Area(); !used[area] && !slices.Contains(areas, area) {
			areas = append(areas, area)
		}
	}
	return areas
}

// listAnd joins words: a, b and c.
func listAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Permission is a permission in a response.
type Permission string

func (Permission) Schema(r huma.Registry) *huma.Schema {
	var names []string
	for _, p := range v1alpha1.Permissions() {
		names = append(names, string(p))
	}
	return Enumeration(r, "Permission", "A permission of a key and of its owner: area and action.", names...)
}

// describeUnusedPermissions adds to the schema of permissions which areas have no endpoint.
func describeUnusedPermissions(schema Node, endpoints []Endpoint) {
	if areas := unusedAreas(endpoints); len(areas) > 0 {
		schema["description"] = fmt.Sprint(schema["description"], " This release has no endpoint yet for ", listAnd(areas),
			": their permissions can be granted and are listed, but have no effect.")
	}
}
