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

// objectName matches how controllers name an environment or a connector in a text: by its object, as
// Environment "name" or, as store.ObjectRef does, as Environment namespace/name. A caller of this API
// knows it by the name for people.
var objectName = regexp.MustCompile(`\b(Environment|Connector) (?:"([a-z0-9.-]+)"|([a-z0-9-]+)/([a-z0-9.-]*[a-z0-9]))`)

// explained is a shape with texts that controllers wrote.
type explained interface {
	// texts are the texts that exist.
	Texts() []*string
}

func PresentTexts(text *string) []*string {
	if text == nil {
		return nil
	}
	return []*string{text}
}

// names are the names for people of a project's objects, by kind and name of the object, as far as they were
// asked for.
type names struct {
	server *Service
	caller *Caller
	known  map[string]string
}

func (s *Service) namesFor(c *Caller) *names {
	return &names{server: s, caller: c, known: map[string]string{}}
}

// NameObjects replaces the names of objects in the texts of a response by the names for people. body points to the response.
func (s *Service) NameObjects(ctx context.Context, c *Caller, body any) {
	s.namesFor(c).rename(ctx, body)
}

// rename writes the names for people into the texts of a body: a shape, or a list of them.
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
		*text = n.text(ctx, *text)
	}
}

// text is a text with the names for people. An object that is gone, or that the key does not reach, keeps the name
// that the text has.
func (n *names) text(ctx context.Context, text string) string {
	return objectName.ReplaceAllStringFunc(text, func(found string) string {
		name, ok := n.known[found]
		if !ok {
			parts := objectName.FindStringSubmatch(found)
			ref := store.ObjectRef{Kind: parts[1], Namespace: cmp.Or(parts[3], n.caller.Namespace), Name: cmp.Or(parts[2], parts[4])}
			if name = n.look(ctx, ref); name == "" {
				name = found
			}
			n.known[found] = name
		}
		return name
	})
}

// look is what people call an object; "" if nobody knows. What explains an answer is no reason to fail it.
func (n *names) look(ctx context.Context, ref store.ObjectRef) string {
	if ref.Namespace != n.caller.Namespace {
		return ""
	}
	held, err := n.server.Store.Holders(ctx, n.caller.ProjectID, ref.Kind)
	if err != nil {
		return ""
	}
	for _, object := range held {
		if object.Ref.SameObject(ref) {
			return n.called(ctx, ref.Kind, object.Key.ID)
		}
	}
	return ""
}

func (n *names) called(ctx context.Context, kind string, id uuid.UUID) string {
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

// problem is a problem whose texts have the names for people.
func (n *names) problem(ctx context.Context, p Problem) Problem {
	p.Detail, p.Errors = n.text(ctx, p.Detail), slices.Clone(p.Errors)
	for i := range p.Errors {
		p.Errors[i].Message = n.text(ctx, p.Errors[i].Message)
	}
	return p
}
