// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// ProjectID is the id of the project of a namespace: a UUIDv5 of the platform's
// id and the namespace's name. Nobody can choose it, so nobody can take another
// project's, and the same platform id gives the same ids in another cluster. It
// never changes.
func ProjectID(platformID uuid.UUID, namespace string) uuid.UUID {
	return uuid.NewSHA1(platformID, []byte(namespace))
}

// ProjectObjectID is the id of an object that has no spec.id: a UUIDv5 of the
// project's id and "Kind/name". It is a function of the manifests alone, so that
// ids and webhook URLs survive delete-and-apply, a restore and a move to another
// cluster. It never changes.
func ProjectObjectID(projectID uuid.UUID, kind, name string) uuid.UUID {
	return uuid.NewSHA1(projectID, []byte(kind+"/"+name))
}

// ObjectID is the id that an object of the project asks for: the project's own
// for its Project, else spec.id where it is set, else ProjectObjectID. It is the
// object's once the store's claim names the object, and not before. The error
// names what is no UUID, which the API server should not have let through.
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

// WebhookURL is the address of a connector's webhook at a gateway whose URL may end
// with a slash. The gateway serves it as /hooks/{project_id}/{connector_id}, and
// callers keep it: it never changes.
func WebhookURL(gatewayURL string, projectID, connectorID uuid.UUID) string {
	return strings.TrimRight(gatewayURL, "/") + "/hooks/" + projectID.String() + "/" + connectorID.String()
}

// GitWebhookURL is the address of a project's push webhook at a gateway whose URL may end
// with a slash. The gateway serves it as /git/{project_id}, and Git providers keep it: it
// never changes.
func GitWebhookURL(gatewayURL string, projectID uuid.UUID) string {
	return strings.TrimRight(gatewayURL, "/") + "/git/" + projectID.String()
}
