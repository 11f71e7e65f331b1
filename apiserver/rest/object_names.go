// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"context"
	"reflect"
	"regexp"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// objectName matches the name of an environment or a connector in a text of a controller: Environment "name" or, from
// store.ObjectRef, Environment namespace/name. Callers of this API know the object by its display name.
var objectName = regexp.MustCompile(`\b(Environment|Connector) (?:"([a-z0-9.-]+)"|([a-z0-9-]+)/([a-z0-9.-]*[a-z0-9]))`)

// explained is a shape with texts of controllers.
type explained interface {
	// Texts returns the texts that are set.
	Texts() []*string
}

func PresentTexts(text *string) []*string {
	if text == nil {
		return nil
	}
	return []*string{text}
}

// names caches display names of a project's objects, by kind and name of the object.
type names struct {
	server *Service
	caller *Caller
	known  map[string]string
}

func (s *Service) namesFor(c *Caller) *names {
	return &names{server: s, caller: c, known: map[string]string{}}
}

// NameObjects replaces the names of objects in the texts of a response with their display names. body points to the
// response.
func (s *Service) NameObjects(ctx context.Context, c *Caller, body any) {
	s.namesFor(c).rename(ctx, body)
}

// rename replaces names in the texts of a body, which is a shape or a list of shapes.
func (n *names) rename(ctx context.Context, body any) {
	switch v := reflect.ValueOf(body).Elem(); {
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if shape, ok := v.Index(i).Addr().Interface().(explained); ok {
				n.renameAll(ctx, shape.Texts()...)
			}
		}
	default:
		if shape, ok := body.(explained); ok {
			n.renameAll(ctx, shape.Texts()...)
		}
	}
}

func (n *names) renameAll(ctx context.Context, texts ...*string) {
	for _, text := range texts {
		*text = n.replaceNames(ctx, *text)
	}
}

// replaceNames returns a text with display names. A deleted object, or one that the key does not reach, keeps its name.
func (n *names) replaceNames(ctx context.Context, text string) string {
	return objectName.ReplaceAllStringFunc(text, func(found string) string {
		name, ok := n.known[found]
		if !ok {
			parts := objectName.FindStringSubmatch(found)
			ref := store.ObjectRef{Kind: parts[1], Namespace: cmp.Or(parts[3], n.caller.Namespace), Name: cmp.Or(parts[2], parts[4])}
			if name = n.findDisplayName(ctx, ref); name == "" {
				name = found
			}
			n.known[found] = name
		}
		return name
	})
}

// findDisplayName returns the display name of an object, or "" if it is unknown. Errors do not fail the response,
// because the text is only an explanation.
func (n *names) findDisplayName(ctx context.Context, ref store.ObjectRef) string {
	if ref.Namespace != n.caller.Namespace {
		return ""
	}
	held, err := n.server.Store.Holders(ctx, n.caller.ProjectID, ref.Kind)
	if err != nil {
		return ""
	}
	for _, object := range held {
		if object.Ref.SameObject(ref) {
			return n.displayNameOf(ctx, ref.Kind, object.Key.ID)
		}
	}
	return ""
}

func (n *names) displayNameOf(ctx context.Context, kind string, id uuid.UUID) string {
	key := n.caller.RowKey(ID(id))
	if kind == store.KindEnvironment {
		if e, err := n.server.Store.Environment(ctx, key); err == nil && e.DisplayName != "" && n.caller.Reaches(e.Ref.Name) {
			return `environment "` + e.DisplayName + `"`
		}
		return ""
	}
	c, err := n.server.Store.Connector(ctx, key)
	if err != nil || c.Name == "" || n.server.CheckReachID(ctx, n.caller, c.EnvironmentID) != nil {
		return ""
	}
	return `connector "` + c.Name + `"`
}

// problem returns a problem with display names in its texts.
func (n *names) problem(ctx context.Context, p Problem) Problem {
	p.Detail, p.Errors = n.replaceNames(ctx, p.Detail), slices.Clone(p.Errors)
	for i := range p.Errors {
		p.Errors[i].Message = n.replaceNames(ctx, p.Errors[i].Message)
	}
	return p
}
