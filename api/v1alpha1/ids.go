// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"github.com/google/uuid"
)

// ProjectObjectID is the id of an object that has no spec.id: a UUIDv5 of the
// project's id and "Kind/name". It is a function of the manifests alone, so that
// ids and webhook URLs survive delete-and-apply, a restore and a move to another
// cluster. It never changes.
func ProjectObjectID(projectID uuid.UUID, kind, name string) uuid.UUID {
	return uuid.NewSHA1(projectID, []byte(kind+"/"+name))
}

// ObjectID is the id of an object of the project: spec.id where it is set, else
// ProjectObjectID. The error names what is no UUID, which the API server should
// not have let through.
func ObjectID(project *Project, object ConditionedObject) (uuid.UUID, error) {
	if id := object.SpecID(); id != "" {
		parsed, err := uuid.Parse(id)
		if err != nil {
			return uuid.Nil, fmt.Errorf("reading spec.id of %s %q: %w", object.ObjectKind(), object.GetName(), err)
		}
		return parsed, nil
	}
	projectID, err := project.ParsedID()
	if err != nil {
		return uuid.Nil, err
	}
	return ProjectObjectID(projectID, object.ObjectKind(), object.GetName()), nil
}

// ParsedID returns spec.id.
func (p *Project) ParsedID() (uuid.UUID, error) {
	id, err := uuid.Parse(string(p.Spec.ID))
	if err != nil {
		return uuid.Nil, fmt.Errorf("reading spec.id of Project %s/%s: %w", p.Namespace, p.Name, err)
	}
	return id, nil
}
