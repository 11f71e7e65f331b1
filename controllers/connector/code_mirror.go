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
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// reconcileMirror projects a connector of the code into the store as its activation did, with the fields that
// users may change: enabled, and the version of its secrets. row is the connector's row, or the zero
// value.
func (r *Reconciler) reconcileMirror(
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, ids projection.Identity, row store.Connector,
) (time.Duration, error) {
	c.Status.DefinedInCode, c.Status.Retired = true, false
	if c.Activation() == 0 {
		return 0, &base.WaitingError{Message: fmt.Sprintf("the label %s is reserved for the platform; remove it to use the connector as your own", v1alpha1.LabelDefinedInCode)}
	}
	if c.Retired() {
		return 0, reportRetired(c, row)
	}
	expanded, credentials, err := r.expandTexts(ctx, c, environment, ids, row)
	if problem, is := projection.IsTextError(err); is {
		c.MarkUnexpanded(problem)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	after, err := r.reconcileByType(ctx, expanded, ids, credentials)
	c.Status = expanded.Status
	return after, err
}

// expandTexts returns a connector of the code with the values of variables: the readable part, and the
// credentials to seal.
func (r *Reconciler) expandTexts(
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, ids projection.Identity, row store.Connector,
) (*v1alpha1.Connector, secrets.Credentials, error) {
	variables, err := projection.VariablesOf(ctx, r.Base, environment, store.Key{ProjectID: ids.Project, ID: ids.Environment}, r.Keys, projection.Texts(c))
	if err != nil {
		return nil, secrets.Credentials{}, err
	}
	expanded, err := projection.ExpandTexts(c, variables)
	if err != nil {
		return nil, secrets.Credentials{}, err
	}
	credentials, err := projection.Credentials(c, variables)
	if err != nil || credentials.Said == "" {
		return expanded, credentials, err
	}
	return expanded, credentials, r.checkCodeDestination(ctx, c, ids, row, credentials.Said)
}

// checkCodeDestination rejects a connector whose URL and headers name variables, unless the code has the
// same URL and headers: either at its activation or in the live deployment's file. Otherwise a user with
// only write access to the object could send the values to another receiver.
func (r *Reconciler) checkCodeDestination(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, row store.Connector, said string) error {
	// Variables have other values in another environment, and none for a retired connector.
	same := row.DefinedInCode && !row.Retired && row.EnvironmentID == ids.Environment
	if same && projection.OpenCredentials(r.Keys, row).Said == said {
		return nil
	}
	elsewhere := &base.WaitingError{Message: "its URL and headers name variables and differ from the project's code; only the code decides where values are sent"}
	environment, err := r.Base.Store.Environment(ctx, store.Key{ProjectID: ids.Project, ID: ids.Environment})
	if err != nil {
		return base.FromStore(err)
	}
	if environment.LiveDeploymentID == nil {
		return elsewhere
	}
	live := store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID}
	d, err := r.Store.Deployment(ctx, live)
	if err != nil {
		return base.FromStore(err)
	}
	files, err := r.Store.ConnectorFiles(ctx, live)
	if err != nil {
		return base.FromStore(err)
	}
	for _, file := range files {
		if v1alpha1.CodeConnectorName(c.Spec.Environment, file.Key) != c.Name {
			continue
		}
		parsed, err := projection.ParseFile(file, d.AgentNames())
		if err != nil {
			return elsewhere
		}
		mirror := projection.MirrorOf(c.Namespace, c.Spec.Environment, parsed)
		if projection.DestinationDigest(mirror.Connector) == said {
			return nil
		}
	}
	return elsewhere
}

// connectorsUsing returns the connectors of the code whose URL or headers name a variable with a value from a
// Secret.
func (r *Reconciler) connectorsUsing(ctx context.Context, secret client.Object) (out []ctrl.Request) {
	environments, connectors := &v1alpha1.EnvironmentList{}, &v1alpha1.ConnectorList{}
	at := client.InNamespace(secret.GetNamespace())
	if err := r.Client.List(ctx, environments, at); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the environments with variables from a Secret")
	}
	for i := range environments.Items {
		e := &environments.Items[i]
		if !slices.ContainsFunc(e.Spec.Variables, func(v v1alpha1.EnvironmentVariable) bool {
			return v.SecretKeyRef != nil && string(v.SecretKeyRef.Name) == secret.GetName()
		}) {
			continue
		}
		if err := r.Client.List(ctx, connectors, at, client.MatchingFields{base.ByEnvironment: e.Name}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing the connectors that send values of a Secret")
		}
		for i := range connectors.Items {
			if c := &connectors.Items[i]; c.Sends() && projection.NamesVariables(c) {
				out = append(out, base.Request(c))
			}
		}
	}
	return out
}

// reportRetired reports a connector that an activation has retired, if the store confirms it: any user can
// write labels.
func reportRetired(c *v1alpha1.Connector, row store.Connector) error {
	if !row.DefinedInCode || !row.Retired {
		return &base.WaitingError{Message: fmt.Sprintf(
			"no activation has retired the connector, although it has the label %s; if it is your own object, remove this label and %s", v1alpha1.LabelRetired, v1alpha1.LabelDefinedInCode)}
	}
	c.MarkRetired()
	return nil
}

// findCodeRow reports whether a connector mirrors code, according to its row, because any user can write
// labels. It rejects a connector without the labels whose ID belongs to a connector of the code: a
// mirror that lost its labels, or an object of a user with the same name, for example in another
// environment. If the gateway serves this object, it can still be disabled.
func (r *Reconciler) findCodeRow(ctx context.Context, c *v1alpha1.Connector, key store.Key) (row store.Connector, is bool, err error) {
	row, err = r.Store.Connector(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Connector{}, c.DefinedInCode(), nil // its activation is not in the store yet
	case err != nil:
		return row, false, base.FromStore(fmt.Errorf("reading the connector with the ID: %w", err))
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
	return row, false, &base.StalledError{Reason: v1alpha1.ReasonNameCollision, Message: fmt.Sprintf(
		"a connector of the project's code has the name %q and stays in effect; delete this object or rename it", c.Name)}
}

// reconcileMislabelled handles a connector that has the labels of a mirror and is no mirror. It is projected like any
// other connector, and can be disabled.
func (r *Reconciler) reconcileMislabelled(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (time.Duration, error) {
	own := c.DeepCopy()
	delete(own.Labels, v1alpha1.LabelDefinedInCode)
	after, err := r.reconcileByType(ctx, own, ids, secrets.Credentials{})
	c.Status = own.Status
	if v1alpha1.IsReady(c) {
		v1alpha1.MarkReady(c, fmt.Sprintf("in effect as your own connector; remove the label %s, which is reserved for the platform", v1alpha1.LabelDefinedInCode))
	}
	return after, err
}
