// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

// maxNamedAgents is the maximum number of agents that the problem of a model names.
const maxNamedAgents = 5

// missingProviders returns the models of the deployment whose provider the project does not have, or "".
func (v *deploymentState) missingProviders() string {
	return missingProviders(v.outcome.Agents, v.project.Spec.ModelProviders)
}

// providersToGoLive returns the missing providers that keep a deployment from going live again, or "". A live
// deployment stays live without its providers.
func (r *Reconciler) providersToGoLive(ctx context.Context, v *deploymentState) (string, error) {
	missing := v.missingProviders()
	if missing == "" {
		return "", nil
	}
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return "", base.FromStore(err)
	}
	if live := environment.LiveDeploymentID; live != nil && *live == v.key.ID {
		return "", nil
	}
	return missing, nil
}

// missingProviders returns the models of agents that none of the providers has, one per line with the remedy, or
// "". Runners find the provider of a model in the same way.
func missingProviders(agents []store.Agent, providers []v1alpha1.ModelProvider) string {
	var known runnerconfig.Providers
	for _, p := range providers {
		known.Providers = append(known.Providers, runnerconfig.Provider{Prefix: p.Prefix, Type: p.Type.EnumValue()})
	}
	users := map[string][]string{}
	for _, a := range agents {
		for _, reference := range a.Models {
			users[reference] = append(users[reference], a.Name)
		}
	}
	var lines []string
	for _, reference := range slices.Sorted(maps.Keys(users)) {
		if p, _, found := known.FindProvider(reference); !found {
			lines = append(lines, fmt.Sprintf("model %q of %s: %s", reference, agentList(users[reference]), runnerconfig.NoProvider(p.Prefix)))
		}
	}
	return store.Cut(strings.Join(lines, "\n"), store.MaxError)
}

// agentList describes agents by their names.
func agentList(names []string) string {
	slices.Sort(names)
	quoted := make([]string, min(len(names), maxNamedAgents))
	for i := range quoted {
		quoted[i] = strconv.Quote(names[i])
	}
	list := "agent " + strings.Join(quoted, ", ")
	if more := len(names) - len(quoted); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
