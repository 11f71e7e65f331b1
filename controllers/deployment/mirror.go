// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// mirrorOutcome copies the store's outcome into the status.
func (r *Reconciler) mirrorOutcome(ctx context.Context, v *deploymentState) error {
	out, status := v.outcome, &v.Status
	status.Branch, status.Commit, status.Message = out.Branch, cmp.Or(out.ResolvedCommit, out.Commit), out.Message
	status.StartedAt, status.EndedAt = statusTime(out.StartedAt), statusTime(out.EndedAt)
	if out.Path != nil && v.uploadDigest() == "" {
		status.Path = out.Path
	}
	if out.BundleDigest != "" {
		status.Bundle = &v1alpha1.DeploymentBundle{Digest: out.BundleDigest, Size: out.BundleSize}
	}
	if err := r.mirrorTests(ctx, v); err != nil {
		return err
	}
	status.Agents, status.AgentCount = shownAgents(out.Agents), int32(len(out.Agents)) //nolint:gosec // a build has at most 1,000
	switch out.Status {
	case store.DeploymentPending:
		v.MarkPending(pendingMessage(v))
	case store.DeploymentBuilding:
		v.MarkBuilding(v1alpha1.DeploymentStepOf(string(out.Phase)))
		if v.problem != "" {
			v.MarkBuildBlocked(v.problem)
		}
	case store.DeploymentDeployed:
		v.MarkDeployed()
		v.MarkConnectors(connectorsOf(out))
		return r.mirrorLive(ctx, v)
	case store.DeploymentFailed:
		v.endAtStep()
		v.MarkFailed(v1alpha1.DeploymentFailureOf(string(out.FailureReason)), out.Message)
	case store.DeploymentCancelled:
		v.endAtStep()
		v.MarkCancelled(cmp.Or(out.Message, "cancelled"))
	}
	return nil
}

// connectorsOf returns the effect of the activation on connectors, if there was an activation.
func connectorsOf(d store.Deployment) (c v1alpha1.AppliedConnectors) {
	c.Live = d.ActivatedAt != nil
	var list []connectorResult
	if len(d.ConnectorResults) == 0 || json.Unmarshal(d.ConnectorResults, &list) != nil {
		return c
	}
	for _, r := range list {
		switch r.Action {
		case actionSkipped, actionFailed:
			c.Left = append(c.Left, r.Connector+": "+ptr.Deref(r.Error, ""))
		case actionRetired:
			c.Retired++
		default:
			c.Applied++
		}
	}
	return c
}

// endAtStep sets the step of the status to the step at which the deployment ended. It may be an earlier
// one, because a build can be faster than the status updates.
func (v *deploymentState) endAtStep() {
	if at := v1alpha1.DeploymentStepOf(string(v.outcome.EndPhase)); at != "" {
		v.Status.Step = at
	}
}

// maxShownAgents is the size limit of a status's agents as JSON, in bytes.
const maxShownAgents = 32 << 10

// shownAgents returns as many agents as fit into the status, sorted by name. The REST API lists all.
func shownAgents(agents []store.Agent) (out []v1alpha1.DeploymentAgent) {
	room := maxShownAgents
	for _, a := range slices.SortedFunc(slices.Values(agents), func(a, b store.Agent) int { return strings.Compare(a.Name, b.Name) }) {
		shown := v1alpha1.DeploymentAgent{Name: a.Name, Type: a.Type, VariantOf: a.VariantOf}
		room -= len(shown.Name) + len(shown.Type) + len(shown.VariantOf) + len(`{"name":"","type":"","variantOf":""},`)
		if room < 0 {
			break
		}
		out = append(out, shown)
	}
	return out
}

// showPhase sets the phase of a deployment that cannot continue.
func (v *deploymentState) showPhase() {
	switch v.outcome.Status {
	case store.DeploymentPending:
		v.Status.Phase, v.Status.Step = v1alpha1.DeploymentPending, ""
	case store.DeploymentBuilding:
		v.Status.Phase, v.Status.Step = v1alpha1.DeploymentBuilding, v1alpha1.DeploymentStepOf(string(v.outcome.Phase))
	}
}

func pendingMessage(v *deploymentState) string {
	if v.isSuspended() {
		return "the environment is suspended; set spec.suspend of the Environment to false to start the build"
	}
	return "waiting for an earlier build"
}

// mirrorLive sets whether the deployment is live. A deleted environment has no live deployment.
func (r *Reconciler) mirrorLive(ctx context.Context, v *deploymentState) error {
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return base.FromStore(err)
	}
	was, by := v.Status.Live, ""
	if live := environment.LiveDeploymentID; live != nil && *live == v.key.ID {
		at := r.Now()
		if environment.LiveActivatedAt != nil {
			at = *environment.LiveActivatedAt
		}
		v.MarkLive(*statusTime(&at), environment.LiveRank)
	} else {
		if live != nil && was {
			by = r.displayName(ctx, store.Key{ProjectID: v.key.ProjectID, ID: *live})
		}
		v.MarkNotLive()
	}
	r.announceLive(v, was, by)
	return nil
}

// statusTime converts a time of the store to a time of the status, in whole seconds like the API server.
func statusTime(t *time.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	out := metav1.NewTime(t.Truncate(time.Second))
	return &out
}
