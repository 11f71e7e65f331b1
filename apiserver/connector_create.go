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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/seal"
)

// LabelSealed is "true" on Secrets whose values are sealed, each for the field
// "header:<name>" of its connector.
const LabelSealed = "agentplatform.dev/sealed"

// HeaderField is what a sealed header value is bound to.
func HeaderField(project, connector uuid.UUID, name string) seal.Field {
	return seal.Field{ProjectID: project, ConnectorID: connector, Name: "header:" + name}
}

// readyInterval is how often a new object is looked at until it is Ready.
const readyInterval = 50 * time.Millisecond

// undoTimeout bounds taking back what a failed create left.
const undoTimeout = 5 * time.Second

// ConnectorCreate is what a connector is made of.
type ConnectorCreate struct {
	Name    string          `json:"name" minLength:"1" maxLength:"63"`
	Type    string          `json:"type" enum:"webhook,cron"`
	Mode    string          `json:"mode,omitempty" enum:"inbound,sync,outbound" default:"inbound"`
	Enabled *bool           `json:"enabled,omitempty" default:"true"`
	Config  json.RawMessage `json:"config,omitempty" doc:"Depends on type and mode."`
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
	conn, objects, err := s.newConnector(c, environment.Name, in)
	if err != nil {
		return Connector{}, "", err
	}
	if err := s.createAll(ctx, objects); err != nil {
		return Connector{}, "", err
	}
	if secret, ok := objects[0].(*corev1.Secret); ok {
		if err := s.adopt(ctx, conn, secret); err != nil {
			s.undo(ctx, objects)
			return Connector{}, "", err
		}
	}
	if err := s.awaitReady(ctx, conn); err != nil {
		return Connector{}, "", err
	}
	shown, err := s.showConnector(ctx, c, conn, environment)
	return shown, "/connectors/" + shown.ID, err
}

// nameIsFree answers 409 for the name of a connector that code defines.
func (s *Server) nameIsFree(ctx context.Context, c *caller, environment, name string) error {
	list, err := s.connectorsOf(ctx, c, environment)
	if err != nil {
		return err
	}
	for i := range list {
		if definedInCode(&list[i]) && list[i].Title() == name {
			return problem(http.StatusConflict, "a connector that is defined in code has this name; choose another")
		}
	}
	return nil
}

func definedInCode(conn *v1alpha1.Connector) bool {
	return conn.Status.DefinedInCode || conn.Labels[v1alpha1.LabelDefinedInCode] == "true"
}

// newConnector makes the objects in the order of their creation.
func (s *Server) newConnector(c *caller, environment string, in *ConnectorCreateInput) (*v1alpha1.Connector, []client.Object, error) {
	id := uuid.New()
	conn := &v1alpha1.Connector{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.NameFor(in.Body.Name, "connector", suffix())},
		Spec: v1alpha1.ConnectorSpec{
			ID: v1alpha1.UUID(id.String()), Environment: v1alpha1.EnvironmentName(environment),
			DisplayName: v1alpha1.DisplayName(in.Body.Name), Mode: v1alpha1.ConnectorMode(in.Body.Mode), Enabled: in.Body.Enabled,
		},
	}
	headers, err := applyConfig(&conn.Spec, in.Body.Type, in.Body.Config)
	if err != nil {
		return nil, nil, err
	}
	var objects []client.Object
	if len(headers) > 0 {
		secret, err := s.sealedHeaders(c.projectID, id, conn, headers)
		if err != nil {
			return nil, nil, err
		}
		conn.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: v1alpha1.Name(secret.Name)}
		objects = append(objects, secret)
	}
	objects = append(objects, conn)
	if in.AgentName != "" {
		objects = append(objects, newLink(conn, in.AgentName))
	}
	return conn, objects, nil
}

// sealedHeaders is the Secret that keeps the headers.
func (s *Server) sealedHeaders(project, id uuid.UUID, conn *v1alpha1.Connector, headers map[string]string) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: conn.Namespace, Name: conn.Name + "-headers",
			Labels: map[string]string{LabelSealed: "true", v1alpha1.LabelConnector: conn.Name},
		},
		Data: map[string][]byte{},
	}
	for name, value := range headers {
		sealed, err := s.sealer.Seal(HeaderField(project, id, name), []byte(value))
		if err != nil {
			return nil, fmt.Errorf("sealing the headers of connector %q: %w", conn.Name, err)
		}
		secret.Data[name] = sealed
	}
	return secret, nil
}

// createAll creates all objects or none.
func (s *Server) createAll(ctx context.Context, objects []client.Object) error {
	for i, o := range objects {
		err := s.client.Create(ctx, o)
		if err == nil {
			continue
		}
		s.undo(ctx, objects[:i+1])
		return fmt.Errorf("creating %T %q: %w", o, o.GetName(), err)
	}
	return nil
}

// adopt lets the Secret go with its connector.
func (s *Server) adopt(ctx context.Context, conn *v1alpha1.Connector, secret *corev1.Secret) error {
	before := secret.DeepCopy()
	secret.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: conn.ObjectKind(), Name: conn.Name, UID: conn.UID,
	}}
	if err := s.client.Patch(ctx, secret, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("tying Secret %q to its connector: %w", secret.Name, err)
	}
	return nil
}

// undo deletes what was created, also of a request that was given up, and also
// the last one: its creation may have been carried out although it failed.
// Their names are random, so nobody else's is hit.
func (s *Server) undo(ctx context.Context, objects []client.Object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, o := range objects {
		if err := s.client.Delete(ctx, o); err != nil && !isNotFound(err) {
			s.logger.WarnContext(ctx, "an object of a failed request stays", "namespace", o.GetNamespace(), "name", o.GetName(), "error", err)
		}
	}
}

// awaitReady returns once the controllers have come to an end with the object,
// or after readyTimeout, or when the client has gone: it exists in any case.
func (s *Server) awaitReady(ctx context.Context, o v1alpha1.ConditionedObject) error {
	// No deadline on the context: a client that limits its rate refuses a call
	// that would come after it, which is no error here.
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for !o.IsReady() && !o.IsStalled() {
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
	}
	return nil
}

// suffix is five random lower-case letters and digits.
func suffix() string { return strings.ToLower(rand.Text())[:5] }
