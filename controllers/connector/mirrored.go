// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// mirrored brings a connector of the code into the store as its activation did, with what
// people may change of it since: enabled, and the version of its secrets. The row is what the
// store has of it, the zero value where that is nothing yet.
func (r *Reconciler) mirrored(
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, ids projection.Identity, row store.Connector,
) (time.Duration, error) {
	c.Status.DefinedInCode, c.Status.Retired = true, false
	if c.Activation() == 0 {
		return 0, &object.WaitingError{Message: fmt.Sprintf("the label %s is the platform's: remove it, and the connector is your own", v1alpha1.LabelDefinedInCode)}
	}
	if c.Retired() {
		return 0, retired(c, row)
	}
	expanded, credentials, err := r.expanded(ctx, c, environment, ids, row)
	if problem, is := projection.IsTextError(err); is {
		c.MarkUnexpanded(problem)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	after, err := r.project(ctx, expanded, ids, credentials)
	c.Status = expanded.Status
	return after, err
}

// expanded is a connector of the code with the values of variables: what of it can be read, and
// what is sealed.
func (r *Reconciler) expanded(
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, ids projection.Identity, row store.Connector,
) (*v1alpha1.Connector, seal.Credentials, error) {
	variables, err := projection.VariablesOf(ctx, r.Base, environment, store.Key{ProjectID: ids.Project, ID: ids.Environment}, r.Keys, projection.Texts(c))
	if err != nil {
		return nil, seal.Credentials{}, err
	}
	expanded, err := projection.Expanded(c, variables)
	if err != nil {
		return nil, seal.Credentials{}, err
	}
	credentials, err := projection.Credentials(c, variables)
	if err != nil || credentials.Said == "" {
		return expanded, credentials, err
	}
	return expanded, credentials, r.saidByCode(ctx, c, ids, row, credentials.Said)
}

// saidByCode holds back a connector whose URL and headers name variables, unless the code says
// the same: as an activation has brought it, or as the file of what is live has it. Who may
// write the object alone is not to learn the values, by sending them elsewhere.
func (r *Reconciler) saidByCode(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, row store.Connector, said string) error {
	// Of another environment the same words have other values; of a retired connector none any more.
	same := row.DefinedInCode && !row.Retired && row.EnvironmentID == ids.Environment
	if same && projection.Opened(r.Keys, row).Said == said {
		return nil
	}
	elsewhere := &object.WaitingError{Message: "its URL and headers name variables, and are not those of the project's code, which alone says where the values go"}
	environment, err := r.Base.Store.Environment(ctx, store.Key{ProjectID: ids.Project, ID: ids.Environment})
	if err != nil {
		return object.FromStore(err)
	}
	if environment.LiveDeploymentID == nil {
		return elsewhere
	}
	live := store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID}
	d, err := r.Store.Deployment(ctx, live)
	if err != nil {
		return object.FromStore(err)
	}
	files, err := r.Store.ConnectorFiles(ctx, live)
	if err != nil {
		return object.FromStore(err)
	}
	for _, file := range files {
		if v1alpha1.CodeConnectorName(c.Spec.Environment, file.Key) != c.Name {
			continue
		}
		parsed, err := projection.Parsed(file, d.AgentNames())
		if err != nil {
			return elsewhere
		}
		mirror, err := projection.MirrorOf(c.Namespace, c.Spec.Environment, parsed)
		if err != nil {
			return err
		}
		if projection.Said(mirror.Connector) == said {
			return nil
		}
	}
	return elsewhere
}

// sentWith are the connectors of the code whose URL or headers name a variable of which a Secret
// has the value.
func (r *Reconciler) sentWith(ctx context.Context, secret client.Object) (out []ctrl.Request) {
	environments, connectors := &v1alpha1.EnvironmentList{}, &v1alpha1.ConnectorList{}
	at := client.InNamespace(secret.GetNamespace())
	if err := r.Client.List(ctx, environments, at); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the environments whose variables a Secret has")
	}
	for i := range environments.Items {
		e := &environments.Items[i]
		if !slices.ContainsFunc(e.Spec.Variables, func(v v1alpha1.EnvironmentVariable) bool {
			return v.SecretKeyRef != nil && string(v.SecretKeyRef.Name) == secret.GetName()
		}) {
			continue
		}
		if err := r.Client.List(ctx, connectors, at, client.MatchingFields{object.ByEnvironment: e.Name}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing the connectors that send what a Secret has")
		}
		for i := range connectors.Items {
			if c := &connectors.Items[i]; c.Sends() && projection.NamesVariables(c) {
				out = append(out, object.Request(c))
			}
		}
	}
	return out
}

// retired shows a connector that an activation has retired, once the store says so too: anybody
// can write labels.
func retired(c *v1alpha1.Connector, row store.Connector) error {
	if !row.DefinedInCode || !row.Retired {
		return &object.WaitingError{Message: fmt.Sprintf(
			"the label %s says what no activation has done; if it is your own object, remove that and %s", v1alpha1.LabelRetired, v1alpha1.LabelDefinedInCode)}
	}
	c.MarkRetired()
	return nil
}

// ofCode says whether a connector mirrors the code, which the store knows by its row: anybody can
// write labels. One that is not marked as such, but has the id of one, is held back: a mirror that has
// lost its labels, or somebody's own of its name, such as one in another environment. Where it is the object that the gateway serves
// by, it can be disabled all the same.
func (r *Reconciler) ofCode(ctx context.Context, c *v1alpha1.Connector, key store.Key) (row store.Connector, is bool, err error) {
	row, err = r.Store.Connector(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Connector{}, c.DefinedInCode(), nil // one that an activation has yet to bring
	case err != nil:
		return row, false, object.FromStore(fmt.Errorf("reading whose connector has the id: %w", err))
	case !row.DefinedInCode:
		return row, false, nil
	case c.DefinedInCode() && strings.HasPrefix(c.Name, string(c.Spec.Environment)+"."):
		return row, true, nil
	}
	if row.Ref.ObjectUID == string(c.UID) {
		if err := r.disable(ctx, c, key, false); err != nil {
			return row, false, err
		}
	}
	return row, false, &object.StalledError{Reason: v1alpha1.ReasonNameCollision, Message: fmt.Sprintf(
		"a connector of the project's code is called %q, and stays as it is; delete this object, or make it with another name", c.Name)}
}

// mislabelled brings in a connector that says of itself that it is of the code, and is not: what
// it is told, such as to be disabled, holds as for any other.
func (r *Reconciler) mislabelled(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (time.Duration, error) {
	own := c.DeepCopy()
	delete(own.Labels, v1alpha1.LabelDefinedInCode)
	after, err := r.project(ctx, own, ids, seal.Credentials{})
	c.Status = own.Status
	if v1alpha1.IsReady(c) {
		v1alpha1.MarkReady(c, fmt.Sprintf("in effect as your own; remove the label %s, which is the platform's", v1alpha1.LabelDefinedInCode))
	}
	return after, err
}
