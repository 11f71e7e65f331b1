// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// ConnectorCreate is what a connector is made of.
type ConnectorCreate struct {
	Name    string               `json:"name" minLength:"1" maxLength:"63" doc:"Its name, unique in its environment." example:"Tickets"`
	Type    ConnectorType        `json:"type" doc:"What it is: webhook."`
	Mode    ConnectorMode        `json:"mode,omitempty" default:"inbound" doc:"In which direction it works: inbound or sync."`
	Enabled *bool                `json:"enabled,omitempty" default:"true" doc:"Whether it works at once."`
	Config  ConnectorConfigInput `json:"config,omitempty" doc:"How it behaves; the shape depends on type and mode. Without it all defaults."`
}

// ConnectorCreateInput is the request that creates a connector.
type ConnectorCreateInput struct {
	EnvironmentQuery
	AgentName string `query:"agent_name" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and inner dashes" doc:"Links that agent in the same request; needs connectors.link too." example:"support"`
	Body      ConnectorCreate
}

func (s *Server) createConnector(ctx context.Context, c *caller, in *ConnectorCreateInput) (answer[Connector], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Connector]{}, err
	}
	conn, objects, err := newConnector(ctx, c, environment.Name, in)
	if err != nil {
		return answer[Connector]{}, err
	}
	if err := s.nameIsFree(ctx, c, conn); err != nil {
		return answer[Connector]{}, err
	}
	if err := s.createAll(ctx, c, objects); err != nil {
		return answer[Connector]{}, err
	}
	if err := s.awaitReady(ctx, objects...); err != nil {
		return answer[Connector]{}, err
	}
	if stalledBy(conn, v1alpha1.ReasonNameTaken) {
		s.undo(ctx, objects)
		return answer[Connector]{}, nameTaken
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return answer[Connector]{}, err
	}
	shown, err := s.showConnector(ctx, c, conn, environment, links, nil)
	if err != nil {
		return answer[Connector]{}, err
	}
	return created(ctx, shown, conn, "/connectors/"+shown.ID), nil
}

// nameIsFree answers 409 for the name of another connector, such as one that code
// defines.
func (s *Server) nameIsFree(ctx context.Context, c *caller, conn *v1alpha1.Connector) error {
	list, err := s.connectorsOf(ctx, c, string(conn.Spec.Environment))
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].Title() == conn.Title() && list[i].Name != conn.Name {
			return nameTaken
		}
	}
	return nil
}

var nameTaken = problem(http.StatusConflict, httpserver.CodeNameTaken, "another connector of the environment has this name; choose another")

// stalledBy says whether a controller has refused an object for a reason.
func stalledBy(o v1alpha1.ConditionedObject, reason string) bool {
	return v1alpha1.IsStalled(o) && o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason == reason
}

func definedInCode(conn *v1alpha1.Connector) bool {
	return conn.Labels[v1alpha1.LabelDefinedInCode] == "true"
}

// newConnector makes the objects in the order of their creation.
func newConnector(
	ctx context.Context, c *caller, environment string, in *ConnectorCreateInput,
) (*v1alpha1.Connector, []v1alpha1.ConditionedObject, error) {
	meta, id := c.meta(ctx, "connector", in.Body.Name)
	conn := &v1alpha1.Connector{ObjectMeta: meta, Spec: v1alpha1.ConnectorSpec{
		ID: id, Environment: v1alpha1.EnvironmentName(environment), DisplayName: v1alpha1.DisplayName(in.Body.Name),
		Mode: v1alpha1.ConnectorModeOf(string(in.Body.Mode)), Enabled: in.Body.Enabled,
	}}
	if in.Body.Type != ConnectorType(v1alpha1.ConnectorWebhook) {
		return nil, nil, invalid(notSupported("body.type"))
	}
	if err := refuseUnsupported(conn); err != nil {
		return nil, nil, err
	}
	if err := applyConfig(&conn.Spec, in.Body.Config); err != nil {
		return nil, nil, err
	}
	objects := []v1alpha1.ConditionedObject{conn}
	if in.AgentName != "" {
		objects = append(objects, newLink(ctx, c, conn, in.AgentName))
	}
	return conn, objects, nil
}

// createAll creates all objects or none. Under an Idempotency-Key what was created
// stays where it is not known why the rest could not be: a repetition completes it,
// and another one may be under way.
func (s *Server) createAll(ctx context.Context, c *caller, objects []v1alpha1.ConditionedObject) error {
	var fresh []v1alpha1.ConditionedObject
	for _, o := range objects {
		made, err := s.makeOne(ctx, c, o.(client.Object))
		mine := made && !apierrors.IsAlreadyExists(err) // else the object is somebody else's
		if err == nil {
			err = s.claim(ctx, c.projectID, o)
		}
		if mine {
			fresh = append(fresh, o)
		}
		if err == nil {
			continue
		}
		if p := s.asProblem(ctx, err); c.idempotencyKey == "" || p.Status < http.StatusInternalServerError {
			s.undo(ctx, fresh)
		}
		return fmt.Errorf("creating %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	return nil
}

// undo deletes what was created, also of a request that was given up, and also
// the last one: its creation may have been carried out although it failed.
// Of what is known to have been created exactly that object is deleted.
func (s *Server) undo(ctx context.Context, objects []v1alpha1.ConditionedObject) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, o := range objects {
		var exactly []client.DeleteOption
		if uid := o.GetUID(); uid != "" {
			exactly = append(exactly, client.Preconditions{UID: &uid})
		}
		if err := s.client.Delete(ctx, o.(client.Object), exactly...); err != nil && !isNotFound(err) {
			s.logger.WarnContext(ctx, "an object of a failed request stays", "namespace", o.GetNamespace(), "name", o.GetName(), "error", err)
		}
	}
}

// awaitReady returns once the controllers have come to an end with the objects,
// one after the other, or one has stalled or waits for somebody, or after
// readyTimeout, or when the client has gone: they exist in any case.
func (s *Server) awaitReady(ctx context.Context, objects ...v1alpha1.ConditionedObject) error {
	// No deadline on the context: a client that limits its rate refuses a call
	// that would come after it, which is no error here.
	timeout := time.NewTimer(s.patience)
	defer timeout.Stop()
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for _, o := range objects {
		for !v1alpha1.IsReady(o) {
			if v1alpha1.IsStalled(o) || waitsForSomebody(o) {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-timeout.C:
				return nil
			case <-ticker.C:
			}
			err := s.client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}, o.(client.Object))
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("waiting for %s %q: %w", o.ObjectKind(), o.GetName(), err)
			}
			o.CommonStatus().ID = o.SpecID() // claimed by createAll
		}
	}
	return nil
}

// waitsForSomebody says that a controller has looked at the object as it is and
// waits for what only a person or a deployment brings.
func waitsForSomebody(o v1alpha1.ConditionedObject) bool {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	if ready == nil || ready.ObservedGeneration != o.GetGeneration() {
		return false
	}
	return ready.Reason == v1alpha1.ReasonAgentUnknown
}
