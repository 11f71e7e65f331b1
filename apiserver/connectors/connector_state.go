// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Delivering is the state of a connector's deliveries.
type Delivering struct {
	State  DeliveringState `json:"state" doc:"The state."`
	Reason *string         `json:"reason" doc:"Why not all deliveries are sent, with the remedy; null if all are sent."`
	Since  *time.Time      `json:"since" doc:"When the state began; null until the platform has recorded it."`
}

func (Delivering) Doc() string { return "The state of an outbound connector's deliveries." }

// deliveringStopped is the state of a connector that does not work.
const deliveringStopped = "stopped"

// showDelivering fills in the state of deliveries, and the reason if an enabled connector sends nothing.
func (s *API) showDelivering(ctx context.Context, c *rest.Caller, conns []v1alpha1.Connector, shown []*Connector) error {
	var ids []uuid.UUID
	for i := range conns {
		if conns[i].Sends() {
			ids = append(ids, c.ObjectKey(&conns[i]).ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	destinations, err := s.Store.DestinationsOf(ctx, c.ProjectID, ids)
	if err != nil {
		return fmt.Errorf("reading how deliveries go: %w", err)
	}
	for i := range conns {
		if conn := &conns[i]; conn.Sends() {
			shown[i].setDelivering(conn, destinations[c.ObjectKey(conn).ID])
		}
	}
	return nil
}

// setDelivering fills in the state of an outbound connector's deliveries to its destination.
func (out *Connector) setDelivering(conn *v1alpha1.Connector, to store.Destination) {
	if out.DisabledReason != nil {
		out.Delivering.Value = &Delivering{State: deliveringStopped, Reason: out.DisabledReason}
		return
	}
	state, reason := to.State(conn.Generation)
	is := &Delivering{State: DeliveringState(state)}
	switch state {
	case store.DestinationFailing:
		is.Reason = rest.Optional("the last attempts failed; one delivery is retried until it succeeds, and the others wait; read the attempts of the connector's runs")
	case store.DestinationRejecting:
		is.Reason = rest.Optional("the destination rejected the last delivery: " + reason + "; replay the failed deliveries")
	case store.DestinationPaused:
		is.Reason = rest.Optional("paused: " + reason + "; set enabled to true to send again")
		out.DisabledReason = is.Reason
	}
	condition := conn.Status.Condition(v1alpha1.ConditionDelivering)
	well := state == store.DestinationDelivering
	if condition != nil && (condition.Status == metav1.ConditionTrue) == well && condition.Reason != v1alpha1.ReasonDisabled {
		is.Since = rest.OptionalTime(&condition.LastTransitionTime.Time)
	}
	out.Delivering.Value = is
}

// showRetired fills in the deployments that retired connectors.
func (s *API) showRetired(ctx context.Context, c *rest.Caller, conns []v1alpha1.Connector, shown []*Connector) error {
	var deployments map[string]string
	for i, out := range shown {
		if !out.Retired {
			continue
		}
		if deployments == nil {
			var err error
			if deployments, err = s.activations(ctx, c, conns[i].Spec.Environment); err != nil {
				return err
			}
		}
		why := "retired: the project's code no longer has the connector"
		if id := deployments[conns[i].Labels[v1alpha1.LabelActivation]]; id != "" && conns[i].Retired() {
			why += ", since deployment " + id
		}
		out.Enabled, out.DisabledReason = false, &why
	}
	return nil
}

// activations returns the IDs of an environment's deployments by the ranks of their activations.
func (s *API) activations(ctx context.Context, c *rest.Caller, environment v1alpha1.EnvironmentName) (map[string]string, error) {
	var list v1alpha1.DeploymentList
	if err := s.Service.List(ctx, c, store.KindDeployment, &list, client.MatchingFields{"spec.environment": string(environment)}); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		if rank := list.Items[i].Status.ActivationRank; rank != 0 {
			out[strconv.FormatInt(rank, 10)] = rest.ObjectID(&list.Items[i])
		}
	}
	return out, nil
}

// showDeletedEnvironment fills in that the environment of connectors was deleted. All connectors without an environment
// had the same one.
func (s *API) showDeletedEnvironment(ctx context.Context, c *rest.Caller, conns []v1alpha1.Connector, shown []*Connector) error {
	for i, out := range shown {
		if out.EnvironmentID != nil {
			continue
		}
		why, err := s.deletedEnvironment(ctx, c, &conns[i])
		if err != nil || why == "" {
			return err
		}
		for _, out := range shown[i:] {
			if out.EnvironmentID == nil {
				out.Enabled, out.DisabledReason = false, &why
			}
		}
		return nil
	}
	return nil
}

// deletedEnvironment returns a text about the deleted environment of a connector, or "" if the store has no environment
// of the connector, for example because the environment has not been created yet.
func (s *API) deletedEnvironment(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) (why string, err error) {
	row, err := s.Store.Connector(ctx, c.ObjectKey(conn))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking which environment connector %q had: %w", conn.Name, err)
	}
	name, err := s.Store.EnvironmentName(ctx, store.Key{ProjectID: c.ProjectID, ID: row.EnvironmentID})
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && name == "":
		return "its environment was deleted", nil
	case err != nil:
		return "", fmt.Errorf("reading what the environment of connector %q was called: %w", conn.Name, err)
	}
	return fmt.Sprintf("its environment %q was deleted", name), nil
}

// mustHaveEnvironment returns 409 for a connector whose environment was deleted, because a change would have no effect.
func (s *API) mustHaveEnvironment(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) error {
	environment, err := s.environmentOf(ctx, c, conn)
	if err != nil || environment != nil {
		return err
	}
	why, err := s.deletedEnvironment(ctx, c, conn)
	if err != nil || why == "" {
		return err
	}
	return rest.NewProblem(http.StatusConflict, httpserver.CodeGone,
		"the connector cannot be changed: "+why+"; create a connector in another environment")
}
