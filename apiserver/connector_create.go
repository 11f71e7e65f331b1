// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// readyInterval is how often a new object is looked at until it is Ready.
const readyInterval = 50 * time.Millisecond

// undoTimeout bounds taking back what a failed create left.
const undoTimeout = 5 * time.Second

// ConnectorCreate is what a connector is made of.
type ConnectorCreate struct {
	Name    string          `json:"name" minLength:"1" maxLength:"63"`
	Type    string          `json:"type" enum:"webhook,cron" doc:"This release has webhook alone."`
	Mode    string          `json:"mode,omitempty" enum:"inbound,sync,outbound" default:"inbound" doc:"This release has inbound and sync."`
	Enabled *bool           `json:"enabled,omitempty" default:"true"`
	Config  json.RawMessage `json:"config,omitempty" doc:"Depends on type and mode: require_authentication; timeout_seconds for sync."`
}

// ConnectorCreateInput is the request that creates a connector.
type ConnectorCreateInput struct {
	EnvironmentQuery
	AgentName string `query:"agent_name" doc:"Links that agent in the same request; needs connectors.link too."`
	Body      ConnectorCreate
}

func (s *Server) createConnector(ctx context.Context, c *caller, in *ConnectorCreateInput) (Connector, string, error) {
	if in.AgentName != "" {
		if err := s.require(ctx, c, "connectors.link"); err != nil {
			return Connector{}, "", err
		}
	}
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return Connector{}, "", err
	}
	if err := s.nameIsFree(ctx, c, environment.Name, in.Body.Name); err != nil {
		return Connector{}, "", err
	}
	conn, objects, err := newConnector(c, environment.Name, in)
	if err != nil {
		return Connector{}, "", err
	}
	if err := s.createAll(ctx, c, objects); err != nil {
		return Connector{}, "", err
	}
	if err := s.awaitReady(ctx, objects...); err != nil {
		return Connector{}, "", err
	}
	if stalledBy(conn, v1alpha1.ReasonNameTaken) {
		s.undo(ctx, objects)
		return Connector{}, "", nameTaken
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return Connector{}, "", err
	}
	shown, err := s.showConnector(ctx, c, conn, environment, links)
	return shown, "/connectors/" + shown.ID, err
}

// nameIsFree answers 409 for the name of a connector that code defines.
func (s *Server) nameIsFree(ctx context.Context, c *caller, environment, name string) error {
	list, err := s.connectorsOf(ctx, c, environment)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].Title() == name {
			return nameTaken
		}
	}
	return nil
}

var nameTaken = problem(http.StatusConflict, "another connector of the environment has this name; choose another")

// stalledBy says whether a controller has refused an object for a reason.
func stalledBy(o v1alpha1.ConditionedObject, reason string) bool {
	return o.IsStalled() && o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason == reason
}

func definedInCode(conn *v1alpha1.Connector) bool {
	return conn.Labels[v1alpha1.LabelDefinedInCode] == "true"
}

// newConnector makes the objects in the order of their creation.
func newConnector(c *caller, environment string, in *ConnectorCreateInput) (*v1alpha1.Connector, []v1alpha1.ConditionedObject, error) {
	conn := &v1alpha1.Connector{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.NameFor(in.Body.Name, "connector", suffix())},
		Spec: v1alpha1.ConnectorSpec{
			ID: v1alpha1.UUID(uuid.NewString()), Environment: v1alpha1.EnvironmentName(environment),
			DisplayName: v1alpha1.DisplayName(in.Body.Name), Mode: v1alpha1.ConnectorMode(in.Body.Mode), Enabled: in.Body.Enabled,
		},
	}
	if in.Body.Type != string(v1alpha1.ConnectorWebhook) {
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
		objects = append(objects, newLink(conn, in.AgentName))
	}
	return conn, objects, nil
}

// createAll creates all objects or none.
func (s *Server) createAll(ctx context.Context, c *caller, objects []v1alpha1.ConditionedObject) error {
	for i, o := range objects {
		err := s.client.Create(ctx, o.(client.Object))
		if err == nil {
			err = s.claim(ctx, c.projectID, o)
		}
		if err == nil {
			continue
		}
		made := objects[:i+1]
		if apierrors.IsAlreadyExists(err) {
			made = objects[:i] // the last one is somebody else's
		}
		s.undo(ctx, made)
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
// one after the other, or one has stalled, or after readyTimeout, or when the
// client has gone: they exist in any case.
func (s *Server) awaitReady(ctx context.Context, objects ...v1alpha1.ConditionedObject) error {
	// No deadline on the context: a client that limits its rate refuses a call
	// that would come after it, which is no error here.
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for _, o := range objects {
		for !o.IsReady() {
			if o.IsStalled() {
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

// suffix is five random lower-case letters and digits.
func suffix() string { return strings.ToLower(rand.Text())[:5] }
