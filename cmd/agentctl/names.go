// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

const (
	// minVersion is how many characters of a commit or of a digest name a deployment at least. Fewer could match another one
	// by chance or on purpose if the right one is too old for the list.
	minVersion = 7
	// maxNamed is how many candidates an error lists.
	maxNamed = 20
)

// candidate is an object that an argument or a flag can name, by its ID or by its name.
type candidate struct {
	id, name string
	// note tells candidates with the same name apart.
	note string
	// retired candidates give way to others with the same name in the same environment.
	retired bool
	// environment is an ID.
	environment string
}

// findCandidate returns the index of the candidate with an ID, or else of the only one that matches. flag is the flag or the
// argument.
func findCandidate(flag, wanted string, all []candidate, matches func(candidate) bool) (int, error) {
	var found []int
	for i, c := range all {
		switch {
		case strings.EqualFold(c.id, wanted):
			return i, nil
		case matches(c):
			found = append(found, i)
		}
	}
	found = withoutRetired(found, all)
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%s: the project has no %q, or the key cannot see it; there is %s", flag, printable(wanted), describeAll(all, candidate.nameOrID))
	case 1:
		return found[0], nil
	}
	several := make([]candidate, len(found))
	for i, at := range found {
		several[i] = all[at]
	}
	return 0, fmt.Errorf("%s: %q is ambiguous; use an ID: %s", flag, printable(wanted), describeAll(several, func(c candidate) string { return c.id }))
}

// nameOrID returns the name, or else the ID.
func (c candidate) nameOrID() string { return cmp.Or(c.name, c.id) }

// withoutRetired removes the retired candidates that have another one in their environment. A candidate of another environment
// does not count, because another member may have created it.
func withoutRetired(found []int, all []candidate) (remaining []int) {
	for _, at := range found {
		c := all[at]
		if !c.retired || !slices.ContainsFunc(found, func(other int) bool { return !all[other].retired && all[other].environment == c.environment }) {
			remaining = append(remaining, at)
		}
	}
	return remaining
}

// parseID returns the ID that a text is, in lower case. 32 digits without dashes are no ID, because they can begin a commit.
func parseID(text string) (string, bool) {
	id, err := uuid.Parse(text)
	return id.String(), err == nil && len(text) == len(id.String())
}

// describeAll lists candidates for an error.
func describeAll(all []candidate, describe func(candidate) string) string {
	if len(all) == 0 {
		return "none"
	}
	texts := make([]string, 0, maxNamed+1)
	for _, c := range all[:min(len(all), maxNamed)] {
		text := describe(c)
		if c.note != "" {
			text += " (" + c.note + ")"
		}
		texts = append(texts, printable(text))
	}
	if more := len(all) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// findEnvironment returns the environment with an ID or a slug, the default one for "". flag is the flag that names it.
func (c *apiClient) findEnvironment(ctx context.Context, flag, wanted string) (restclient.Environment, error) {
	list, err := c.listEnvironments(ctx)
	if err != nil {
		return restclient.Environment{}, err
	}
	if len(list) == 0 {
		return restclient.Environment{}, errors.New("the project has no environment that the key can see")
	}
	all := make([]candidate, 0, len(list))
	for _, e := range list {
		if wanted == "" && e.IsDefault {
			return e, nil
		}
		all = append(all, candidate{id: e.ID, name: e.Slug})
	}
	if wanted == "" {
		return restclient.Environment{}, fmt.Errorf("the key cannot see the default environment; name another one by --environment: %s", describeAll(all, candidate.nameOrID))
	}
	at, err := findCandidate(flag, wanted, all, func(c candidate) bool { return c.name == wanted })
	if err != nil {
		return restclient.Environment{}, err
	}
	return list[at], nil
}

// findEnvironments returns the environment that --environment names, or for "" all that the key can see.
func (c *apiClient) findEnvironments(ctx context.Context, wanted string) ([]restclient.Environment, error) {
	if wanted == "" {
		return c.listEnvironments(ctx)
	}
	e, err := c.findEnvironment(ctx, "--environment", wanted)
	return []restclient.Environment{e}, err
}

// bindLookup binds the flag that limits the lookup of a name to an environment.
func bindLookup(flags *pflag.FlagSet, environment *string) {
	flags.StringVar(environment, "environment", "", "slug or ID of the environment for looking up a name; default: all environments that the key can read")
}

// purpose is what a command does with a deployment.
type purpose struct {
	// participle is the action for messages, such as "cancelled".
	participle string
	// fits reports whether the action is possible. It is nil if the action is always possible.
	fits func(deployment) bool
}

// findDeployment returns the ID of the deployment that an argument names: by its ID, or by the beginning of its commit or of the
// digest of its upload. If several match, those count for which the action is possible.
func (c *apiClient) findDeployment(ctx context.Context, environment, wanted string, p purpose) (string, error) {
	if id, ok := parseID(wanted); ok {
		return id, nil
	}
	if len(strings.TrimPrefix(wanted, "sha256:")) < minVersion {
		return "", fmt.Errorf("DEPLOYMENT: must be the ID of a deployment, or the first %d or more characters of its commit, or of its digest after sha256:, as shown by `agentctl status --environment ENVIRONMENT`", minVersion)
	}
	list, all, err := c.deploymentCandidates(ctx, environment)
	if err != nil {
		return "", fmt.Errorf("DEPLOYMENT: looking up %q: %w", printable(wanted), err)
	}
	byID := make(map[string]deployment, len(list))
	for _, d := range list {
		byID[d.Value.ID] = d
	}
	hasVersion := func(c candidate) bool { return byID[c.id].hasVersion(wanted) }
	matches := hasVersion
	if fits := func(c candidate) bool { return hasVersion(c) && p.fits(byID[c.id]) }; p.fits != nil && slices.ContainsFunc(all, fits) {
		matches = fits
	}
	at, err := findCandidate("DEPLOYMENT", wanted, all, matches)
	if err != nil {
		return "", err
	}
	return list[at].Value.ID, nil
}

// chooseDeployment returns the ID of the deployment that the argument names. Without an argument it is the only deployment for which
// the action is possible; a message names it.
func (o *deployOptions) chooseDeployment(ctx context.Context, args []string, p purpose) (string, error) {
	if len(args) == 1 {
		return o.api.findDeployment(ctx, o.environment, args[0], p)
	}
	list, all, err := o.api.deploymentCandidates(ctx, o.environment)
	if err != nil {
		return "", fmt.Errorf("DEPLOYMENT: looking up deployments that can be %s: %w", p.participle, err)
	}
	var fit []candidate
	for i, c := range all {
		if p.fits(list[i]) && !list[i].Value.IsLive {
			fit = append(fit, c)
		}
	}
	describe := func(c candidate) string { return strings.TrimSpace(c.id + " " + c.name) }
	switch len(fit) {
	case 0:
		return "", fmt.Errorf("DEPLOYMENT: none can be %s; there is %s", p.participle, describeAll(all, describe))
	case 1:
		fmt.Fprintf(o.messages, "to be %s: %s\n", p.participle, describeAll(fit, describe))
		return fit[0].id, nil
	}
	return "", fmt.Errorf("DEPLOYMENT: %d can be %s; name one: %s", len(fit), p.participle, describeAll(fit, describe))
}

// deploymentCandidates returns the deployments of one environment, or for "" of all, and the candidates that they are.
func (c *apiClient) deploymentCandidates(ctx context.Context, environment string) (list []deployment, all []candidate, err error) {
	environments, err := c.findEnvironments(ctx, environment)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range environments {
		some, err := c.listDeployments(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range some {
			all = append(all, candidate{id: d.Value.ID, name: d.shortVersion(), note: e.Slug + ", " + d.stateText(), environment: e.ID})
		}
		list = append(list, some...)
	}
	return list, all, nil
}

// findConnector returns the ID of the connector that a flag or an argument names by its ID or its name.
func (c *apiClient) findConnector(ctx context.Context, flag, environment, wanted string) (string, error) {
	if id, ok := parseID(wanted); ok {
		return id, nil
	}
	if wanted == "" {
		return "", fmt.Errorf("%s: must be the name or the ID of a connector, as shown by `agentctl connectors`", flag)
	}
	_, all, err := c.connectorCandidates(ctx, environment)
	if err != nil {
		return "", fmt.Errorf("%s: looking up %q: %w", flag, printable(wanted), err)
	}
	at, err := findCandidate(flag, wanted, all, func(c candidate) bool { return c.name == wanted })
	if err != nil {
		return "", err
	}
	return all[at].id, nil
}

// connectorCandidates returns the connectors of one environment, or for "" of all, and the candidates that they are.
func (c *apiClient) connectorCandidates(ctx context.Context, environment string) (list []connector, all []candidate, err error) {
	environments, err := c.findEnvironments(ctx, environment)
	if err != nil {
		return nil, nil, err
	}
	list = []connector{}
	for _, e := range environments {
		some, err := c.listConnectors(ctx, e)
		if err != nil {
			return nil, nil, fmt.Errorf("listing the connectors of environment %s: %w", e.Slug, err)
		}
		for _, found := range some {
			note := e.Slug + ", " + string(found.Value.Mode)
			if found.Value.Retired {
				note += ", retired"
			}
			all = append(all, candidate{id: found.Value.ID, name: found.Value.Name, note: note, retired: found.Value.Retired, environment: e.ID})
		}
		list = append(list, some...)
	}
	return list, all, nil
}

// listConnectors returns the connectors of an environment.
func (c *apiClient) listConnectors(ctx context.Context, e restclient.Environment) ([]connector, error) {
	list, err := c.ListConnectors(ctx, &restclient.ListConnectorsParams{EnvironmentID: e.ID})
	if err != nil {
		return nil, err
	}
	documents, err := restclient.Elements[restclient.Connector](list)
	if err != nil {
		return nil, err
	}
	connectors := make([]connector, len(documents))
	for i := range documents {
		connectors[i] = connector{documents[i], e.Slug}
	}
	return connectors, nil
}
