// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	// texts are those that are there.
	texts() []*string
}

func (e *Environment) texts() []*string    { return present(e.Message) }
func (l *Link) texts() []*string           { return present(l.Message) }
func (i *DeploymentItem) texts() []*string { return i.DeploymentSummary.texts() }
func (d *Deployment) texts() []*string     { return d.DeploymentSummary.texts() }

func (c *Connector) texts() []*string {
	out := present(c.DisabledReason)
	for i := range c.UnreadyAgents {
		out = append(out, &c.UnreadyAgents[i].Message)
	}
	return out
}

func (d *DeploymentSummary) texts() []*string {
	out := present(d.Message)
	for i := range d.ConnectorResults {
		out = append(out, present(d.ConnectorResults[i].Error)...)
	}
	return out
}

func present(text *string) []*string {
	if text == nil {
		return nil
	}
	return []*string{text}
}

// names are the names for people of a project's objects, by kind and name of the object, as far as they were
// asked for.
type names struct {
	server *Server
	caller *caller
	known  map[string]string
}

func (s *Server) namesFor(c *caller) *names {
	return &names{server: s, caller: c, known: map[string]string{}}
}

// rename writes the names for people into the texts of a body: a shape, or a list of them.
func (n *names) rename(ctx context.Context, body any) {
	switch v := reflect.ValueOf(body).Elem(); {
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if shape, ok := v.Index(i).Addr().Interface().(explained); ok {
				n.renameAll(ctx, shape.texts()...)
			}
		}
	default:
		if shape, ok := body.(explained); ok {
			n.renameAll(ctx, shape.texts()...)
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
			ref := store.ObjectRef{Kind: parts[1], Namespace: cmp.Or(parts[3], n.caller.namespace), Name: cmp.Or(parts[2], parts[4])}
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
	if ref.Namespace != n.caller.namespace {
		return ""
	}
	held, err := n.server.store.Holders(ctx, n.caller.projectID, ref.Kind)
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
	key := n.caller.row(ID(id))
	if kind == store.KindEnvironment {
		if e, err := n.server.store.Environment(ctx, key); err == nil && e.DisplayName != "" && n.caller.reaches(e.Ref.Name) {
			return `environment "` + e.DisplayName + `"`
		}
		return ""
	}
	c, err := n.server.store.Connector(ctx, key)
	if err != nil || c.Name == "" || n.server.mustReachID(ctx, n.caller, c.EnvironmentID) != nil {
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
