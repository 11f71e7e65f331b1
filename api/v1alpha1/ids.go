// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// ProjectID returns the ID of a namespace's project: a UUIDv5 of the platform's ID and the
// namespace's name. A project cannot choose it, so it cannot take another project's ID. The same
// platform ID gives the same IDs in another cluster. The function never changes.
func ProjectID(platformID uuid.UUID, namespace string) uuid.UUID {
	return uuid.NewSHA1(platformID, []byte(namespace))
}

// ProjectObjectID returns the ID of an object without spec.id: a UUIDv5 of the project's ID and
// "Kind/name". It depends only on the manifests, so IDs and webhook URLs survive a re-creation, a
// restore and a move to another cluster. The function never changes.
func ProjectObjectID(projectID uuid.UUID, kind, name string) uuid.UUID {
	return uuid.NewSHA1(projectID, []byte(kind+"/"+name))
}

// ObjectID returns the ID that an object asks for: the project's ID for its Project, else spec.id
// if it is set, else ProjectObjectID. The object owns the ID only after the store's ID claim names
// the object. It returns an error if spec.id is not a UUID, which the API server should have
// rejected.
func ObjectID(projectID uuid.UUID, object ConditionedObject) (uuid.UUID, error) {
	if object.ObjectKind() == (&Project{}).ObjectKind() {
		return projectID, nil
	}
	id := object.SpecID()
	if id == "" {
		return ProjectObjectID(projectID, object.ObjectKind(), object.GetName()), nil
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return uuid.Nil, fmt.Errorf("reading spec.id of %s %q: %w", object.ObjectKind(), object.GetName(), err)
	}
	return parsed, nil
}

// WebhookURL returns the URL of a connector's webhook. gatewayURL can end with a slash. The gateway
// serves it as /hooks/{project_id}/{connector_id}. It never changes, because callers store it.
func WebhookURL(gatewayURL string, projectID, connectorID uuid.UUID) string {
	return strings.TrimRight(gatewayURL, "/") + "/hooks/" + projectID.String() + "/" + connectorID.String()
}

// GitWebhookURL returns the URL of a project's push webhook. gatewayURL can end with a slash. The
// gateway serves it as /git/{project_id}. It never changes, because Git providers store it.
func GitWebhookURL(gatewayURL string, projectID uuid.UUID) string {
	return strings.TrimRight(gatewayURL, "/") + "/git/" + projectID.String()
}
