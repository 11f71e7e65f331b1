// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// connectorsError reports the connectors of the code that keep a deployment from going live.
type connectorsError struct{ changes []change }

// Error names the connectors, one per line.
func (e *connectorsError) Error() string { return store.Cut(failures(e.changes), store.MaxError) }

// addConnectors adds the connectors of the deployment's code to an activation. If tolerated, connectors
// that cannot be applied stay unchanged. Otherwise addConnectors returns a *connectorsError. refused
// has the reasons of connectors that the store has rejected, by the name of their object.
func (r *Reconciler) addConnectors(
	ctx context.Context, v *deploymentState, a *store.Activation, tolerated bool, refused map[string]string,
) error {
	files, err := r.Store.ConnectorFiles(ctx, v.key)
	if err != nil {
		return base.FromStore(err)
	}
	found, err := r.readActivationState(ctx, v, files)
	if err != nil {
		return err
	}
	found.refused = refused
	changes := found.changes(files)
	if failures(changes) != "" && !tolerated {
		return &connectorsError{changes}
	}
	for _, c := range changes {
		switch {
		case c.action == actionFailed: // its mirror is built from the file in the row
			name := v1alpha1.CodeConnectorName(v.Spec.Environment, c.key)
			a.Kept = append(a.Kept, v1alpha1.ProjectObjectID(v.key.ProjectID, store.KindConnector, name))
		case c.mirror != nil:
			if err := r.addConnector(ctx, v, a, c); err != nil {
				return err
			}
		}
	}
	a.ConnectorResults, err = results(changes, true)
	return err
}

// addConnector adds a connector with its links.
func (r *Reconciler) addConnector(ctx context.Context, v *deploymentState, a *store.Activation, c change) error {
	ids := c.mirror.Identity(v.environmentKey)
	var (
		secret, keyID string
		err           error
	)
	if crd.GeneratesSecret(c.expanded) {
		if secret, keyID, err = projection.GenerateSecret(ctx, r.Store, r.Keys, c.expanded, ids, int64(c.expanded.SecretVersion())); err != nil {
			return err
		}
	}
	row, err := c.mirror.Row(c.expanded, ids, secret, keyID)
	if err != nil {
		return err
	}
	if row.Sealed, row.SealedKey, err = projection.Seal(ctx, r.Base.Store, r.Keys, ids, c.credentials); err != nil {
		return err
	}
	a.Connectors = append(a.Connectors, row)
	a.Links = append(a.Links, c.mirror.Rows(ids.Project)...)
	return nil
}

// readActivationState reads the state that the connectors of the code meet.
func (r *Reconciler) readActivationState(ctx context.Context, v *deploymentState, files []store.ConnectorFile) (activationState, error) {
	s := activationState{
		namespace: v.Namespace, environment: v.Spec.Environment,
		connectors: map[string]*v1alpha1.Connector{}, links: map[string][]*v1alpha1.ConnectorLink{}, rows: map[string]store.Connector{},
		agents: v.outcome.AgentNames(),
	}
	rows, err := r.Store.CodeConnectors(ctx, v.environmentKey)
	if err != nil {
		return s, base.FromStore(err)
	}
	for _, row := range rows {
		s.rows[row.Ref.Name] = row
	}
	connectors := &v1alpha1.ConnectorList{}
	err = r.Client.List(ctx, connectors, client.InNamespace(v.Namespace), client.MatchingFields{base.ByEnvironment: string(v.Spec.Environment)})
	if err != nil {
		return s, fmt.Errorf("listing the connectors: %w", err)
	}
	for i := range connectors.Items {
		s.connectors[connectors.Items[i].Name] = &connectors.Items[i]
	}
	if len(files) == 0 {
		return s, nil
	}
	if err := r.addForeignConnectors(ctx, v, &s, files); err != nil {
		return s, err
	}
	links := &v1alpha1.ConnectorLinkList{}
	if err := r.Client.List(ctx, links, client.InNamespace(v.Namespace)); err != nil {
		return s, fmt.Errorf("listing the links: %w", err)
	}
	for i := range links.Items {
		of := string(links.Items[i].Spec.Connector)
		s.links[of] = append(s.links[of], &links.Items[i])
	}
	texts := make([]string, len(files))
	for i, file := range files {
		texts[i] = file.Content
	}
	s.variables, err = projection.VariablesOf(ctx, r.Base, v.environment, v.environmentKey, r.Keys, texts)
	return s, err
}

// addForeignConnectors adds connectors of other environments with the name of one of the files. They exist if a
// label contradicts a spec. If there is no object, an earlier activation may have created a connector
// that has no mirror yet.
func (r *Reconciler) addForeignConnectors(ctx context.Context, v *deploymentState, s *activationState, files []store.ConnectorFile) error {
	for _, file := range files {
		name := v1alpha1.CodeConnectorName(v.Spec.Environment, file.Key)
		if s.connectors[name] != nil {
			continue
		}
		other := &v1alpha1.Connector{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: name}, other)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("finding Connector %q: %w", name, err)
		}
		if err == nil {
			other.Labels = nil // ignore the labels: the connector is not of this environment
			s.connectors[name] = other
		}
	}
	return nil
}

// failConnectors fails a new deployment whose connectors cannot be applied.
func (r *Reconciler) failConnectors(ctx context.Context, v *deploymentState, failed *connectorsError) error {
	list, err := results(failed.changes, false)
	if err != nil {
		return err
	}
	if err := r.Store.RecordConnectors(ctx, v.key, list); err != nil {
		return base.FromStore(err)
	}
	return r.endBuild(ctx, v, store.DeploymentFailed, store.FailureConnectors, failed.Error())
}
