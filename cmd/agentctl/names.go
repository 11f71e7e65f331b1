// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
)

const (
	// leastOfVersion is how many characters of a commit, or of a digest, name a deployment at
	// least: fewer could be met by chance, or by somebody's choice, where the one that is meant
	// is older than those that are listed.
	leastOfVersion = 7
	// mostNamed is how many of what there is an error lists.
	mostNamed = 20
)

// named is something that people name: by its id, or by what lists show of it.
type named struct {
	id, name string
	// note tells it from others of its name.
	note string
	// past says that one of the same name and place that is not is meant before it.
	past bool
	// place is the id of its environment.
	place string
}

// chosen is the place of the one that is meant in what there is; what is the flag or the argument.
func chosen(what, wanted string, all []named, is func(named) bool) (int, error) {
	var found []int
	for i, n := range all {
		switch {
		case strings.EqualFold(n.id, wanted):
			return i, nil
		case is(n):
			found = append(found, i)
		}
	}
	found = present(found, all)
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%s: the project has no %q, or the key does not reach it; there is %s", what, printable(wanted), listed(all, func(n named) string { return cmp.Or(n.name, n.id) }))
	case 1:
		return found[0], nil
	}
	several := make([]named, len(found))
	for i, at := range found {
		several[i] = all[at]
	}
	return 0, fmt.Errorf("%s: %q is more than one; say which by its id: %s", what, printable(wanted), listed(several, func(n named) string { return n.id }))
}

// present are those but the past ones that give way to another of their place. None gives way to
// one elsewhere, which somebody else may have made.
func present(found []int, all []named) (now []int) {
	for _, at := range found {
		n := all[at]
		if !n.past || !slices.ContainsFunc(found, func(other int) bool { return !all[other].past && all[other].place == n.place }) {
			now = append(now, at)
		}
	}
	return now
}

// idOf says whether it is an id as lists show them; 32 digits alone may be of a commit.
func idOf(text string) (string, bool) {
	id, err := uuid.Parse(text)
	return id.String(), err == nil && len(text) == len(id.String())
}

// listed names what there is, for an error.
func listed(all []named, by func(named) string) string {
	if len(all) == 0 {
		return "none"
	}
	texts := make([]string, 0, mostNamed+1)
	for _, n := range all[:min(len(all), mostNamed)] {
		text := by(n)
		if n.note != "" {
			text += " (" + n.note + ")"
		}
		texts = append(texts, printable(text))
	}
	if more := len(all) - mostNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// environment finds one by its id or its slug; "" is the default.
func (r *rest) environment(ctx context.Context, wanted string) (environment, error) {
	return r.namedEnvironment(ctx, "--environment", wanted)
}

// namedEnvironment is environment for another flag.
func (r *rest) namedEnvironment(ctx context.Context, flag, wanted string) (environment, error) {
	list, err := r.environments(ctx)
	if err != nil {
		return environment{}, err
	}
	if len(list) == 0 {
		return environment{}, errors.New("the project has no environment that the key reaches")
	}
	all := make([]named, 0, len(list))
	for _, e := range list {
		if wanted == "" && e.IsDefault {
			return e, nil
		}
		all = append(all, named{id: e.ID, name: e.Slug})
	}
	if wanted == "" {
		return environment{}, fmt.Errorf("the key does not reach the default environment; name one by --environment: %s", listed(all, func(n named) string { return cmp.Or(n.name, n.id) }))
	}
	at, err := chosen(flag, wanted, all, func(n named) bool { return n.name == wanted })
	if err != nil {
		return environment{}, err
	}
	return list[at], nil
}

// reached are the environment that is wanted, or with "" all that the key may see.
func (r *rest) reached(ctx context.Context, wanted string) ([]environment, error) {
	if wanted == "" {
		return r.environments(ctx)
	}
	e, err := r.environment(ctx, wanted)
	return []environment{e}, err
}

// bindWithin binds the flag by which a name is looked for in one environment.
func bindWithin(flags *pflag.FlagSet, environment *string) {
	flags.StringVar(environment, "environment", "", "slug or id of the environment that a name is looked for in; without it all that the key may see")
}

// deploymentID is that of the deployment that a person names: by its id, or by the beginning of its
// commit, or of the digest of what was uploaded. Of several that have the name those are meant for which
// the use is.
func (r *rest) deploymentID(ctx context.Context, within, wanted string, to use) (string, error) {
	if id, ok := idOf(wanted); ok {
		return id, nil
	}
	if len(strings.TrimPrefix(wanted, "sha256:")) < leastOfVersion {
		return "", fmt.Errorf("DEPLOYMENT: must be the id of a deployment, or the first %d characters or more of its commit, or of its digest after sha256:, as `agentctl status --environment ENVIRONMENT` shows them", leastOfVersion)
	}
	list, all, err := r.deploymentsWithin(ctx, within)
	if err != nil {
		return "", fmt.Errorf("DEPLOYMENT: looking for %q: %w", printable(wanted), err)
	}
	version := make(map[string]deployment, len(list))
	for _, d := range list {
		version[d.ID] = d
	}
	called := func(n named) bool { return version[n.id].begins(wanted) }
	is := called
	if fits := func(n named) bool { return called(n) && to.can(version[n.id]) }; to.can != nil && slices.ContainsFunc(all, fits) {
		is = fits
	}
	at, err := chosen("DEPLOYMENT", wanted, all, is)
	if err != nil {
		return "", err
	}
	return list[at].ID, nil
}

// use is what a person names a deployment for.
type use struct {
	// done is what is done to it, such as "cancelled"; can says of which ones it can be, nil of all.
	done string
	can  func(deployment) bool
}

// named is the id of the deployment that is the argument, or without one of the only deployment for which
// the use is; which one that is, is said.
func (o *deployOptions) named(ctx context.Context, args []string, to use) (string, error) {
	if len(args) == 1 {
		return o.api.deploymentID(ctx, o.wanted, args[0], to)
	}
	list, all, err := o.api.deploymentsWithin(ctx, o.wanted)
	if err != nil {
		return "", fmt.Errorf("DEPLOYMENT: looking for what can be %s: %w", to.done, err)
	}
	var fit []named
	for i, n := range all {
		if to.can(list[i]) && !list[i].IsLive {
			fit = append(fit, n)
		}
	}
	described := func(n named) string { return strings.TrimSpace(n.id + " " + n.name) }
	switch len(fit) {
	case 0:
		return "", fmt.Errorf("DEPLOYMENT: none can be %s; there is %s", to.done, listed(all, described))
	case 1:
		fmt.Fprintf(o.messages, "to be %s: %s\n", to.done, listed(fit, described))
		return fit[0].id, nil
	}
	return "", fmt.Errorf("DEPLOYMENT: %d can be %s; say which: %s", len(fit), to.done, listed(fit, described))
}

// deploymentsWithin are the deployments of one environment, or with "" of all, with what they are called.
func (r *rest) deploymentsWithin(ctx context.Context, within string) (list []deployment, all []named, err error) {
	environments, err := r.reached(ctx, within)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range environments {
		some, err := r.deployments(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range some {
			all = append(all, named{id: d.ID, name: d.short(), note: e.Slug + ", " + d.state(), place: e.ID})
		}
		list = append(list, some...)
	}
	return list, all, nil
}

// connectorID is that of the connector that a person names: by its id or its name.
func (r *rest) connectorID(ctx context.Context, what, within, wanted string) (string, error) {
	if id, ok := idOf(wanted); ok {
		return id, nil
	}
	if wanted == "" {
		return "", fmt.Errorf("%s: must be the name or the id of a connector, as `agentctl connectors` shows them", what)
	}
	_, all, err := r.connectorsWithin(ctx, within)
	if err != nil {
		return "", fmt.Errorf("%s: looking for %q: %w", what, printable(wanted), err)
	}
	at, err := chosen(what, wanted, all, func(n named) bool { return n.name == wanted })
	if err != nil {
		return "", err
	}
	return all[at].id, nil
}

// connectorsWithin are the connectors of one environment, or with "" of all, with what they are called.
func (r *rest) connectorsWithin(ctx context.Context, within string) (list []listedConnector, all []named, err error) {
	environments, err := r.reached(ctx, within)
	if err != nil {
		return nil, nil, err
	}
	list = []listedConnector{}
	for _, e := range environments {
		some, err := r.connectors(ctx, e.ID)
		if err != nil {
			return nil, nil, fmt.Errorf("listing the connectors of environment %s: %w", e.Slug, err)
		}
		for i := range some {
			some[i].environment = e.Slug
			note := e.Slug + ", " + some[i].Mode
			if some[i].Retired {
				note += ", retired"
			}
			all = append(all, named{id: some[i].ID, name: some[i].Name, note: note, past: some[i].Retired, place: e.ID})
		}
		list = append(list, some...)
	}
	return list, all, nil
}

// connectors are those of the environment of an id.
func (r *rest) connectors(ctx context.Context, environment string) (list []listedConnector, err error) {
	err = r.call(ctx, http.MethodGet, "/connectors?environment_id="+url.QueryEscape(environment), "", nil, &list)
	return list, err
}
