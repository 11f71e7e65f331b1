// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// environment is what is needed of an environment.
type environment struct {
	ID               string  `json:"id"`
	Name             string  `json:"name"`
	Slug             string  `json:"slug"`
	Kind             string  `json:"kind"`
	IsDefault        bool    `json:"is_default"`
	GitBranch        *string `json:"git_branch"`
	LiveDeploymentID *string `json:"live_deployment_id"`
}

// deployment is what is needed of a deployment.
type deployment struct {
	ID            string `json:"id"`
	EnvironmentID string `json:"environment_id"`
	Status        string `json:"status"`
	Phase         string `json:"phase"`
	FailureReason string `json:"failure_reason"`
	Message       string `json:"message"`
	IsLive        bool   `json:"is_live"`
	BuildLogs     string `json:"build_logs"`
	Source        struct {
		Branch        string `json:"branch"`
		Commit        string `json:"commit"`
		Digest        string `json:"digest"`
		CommitMessage string `json:"commit_message"`
	} `json:"source"`
	CreatedAt   time.Time  `json:"created_at"`
	ActivatedAt *time.Time `json:"activated_at"`

	// shown is all that the REST API says of it.
	shown json.RawMessage
}

// UnmarshalJSON keeps the text beside what is read of it.
func (d *deployment) UnmarshalJSON(text []byte) error {
	type plain deployment
	if err := json.Unmarshal(text, (*plain)(d)); err != nil {
		return err
	}
	d.shown = slices.Clone(text)
	return nil
}

// MarshalJSON is what the REST API says.
func (d deployment) MarshalJSON() ([]byte, error) { return d.shown, nil }

// state is the word for where it stands.
func (d deployment) state() string {
	if d.IsLive {
		return "live"
	}
	return d.Status
}

// open says that it has not ended.
func (d deployment) open() bool { return d.Status == "pending" || d.Status == "building" }

// standing is where it stands in all words that there are.
func (d deployment) standing() string { return d.state() + d.detail() }

// detail follows the state: what it is at, or why it failed, and of an open one what keeps it.
func (d deployment) detail() (text string) {
	if of := cmp.Or(d.FailureReason, d.Phase); of != "" {
		text = " (" + of + ")"
	}
	if d.open() && d.Message != "" {
		text += ": " + printable(d.Message)
	}
	return text
}

// version is the commit's beginning and the first line of its message, or the beginning of the
// digest of what was uploaded.
func (d deployment) version() string {
	if hash, uploaded := strings.CutPrefix(d.Source.Digest, "sha256:"); uploaded {
		return fmt.Sprintf("sha256:%.8s", printable(hash))
	}
	subject, _, _ := strings.Cut(d.Source.CommitMessage, "\n")
	return strings.TrimSpace(fmt.Sprintf("%.8s %s", d.Source.Commit, clip(printable(subject), 50)))
}

// clip shortens text to so many characters.
func clip(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// environments are those that the key may see.
func (r *rest) environments(ctx context.Context) (list []environment, err error) {
	if err := r.call(ctx, http.MethodGet, "/environments", "", nil, &list); err != nil {
		return nil, fmt.Errorf("listing environments: %w", err)
	}
	return list, nil
}

// environment finds one by its id or its slug; "" is the default.
func (r *rest) environment(ctx context.Context, wanted string) (environment, error) {
	list, err := r.environments(ctx)
	if err != nil {
		return environment{}, err
	}
	slugs := make([]string, 0, len(list))
	for _, e := range list {
		if wanted == "" && e.IsDefault || wanted != "" && (strings.EqualFold(e.ID, wanted) || e.Slug == wanted) {
			return e, nil
		}
		slugs = append(slugs, cmp.Or(e.Slug, e.ID))
	}
	switch {
	case len(list) == 0:
		return environment{}, errors.New("the project has no environment that the key reaches")
	case wanted == "":
		return environment{}, fmt.Errorf("the key does not reach the default environment; name one by --environment: %s", strings.Join(slugs, ", "))
	}
	return environment{}, fmt.Errorf("--environment: the project has no %q, or the key does not reach it; there is %s", printable(wanted), strings.Join(slugs, ", "))
}

// placeOf is what the environment of a deployment is called: by its id where the key sees no
// environments, or it is gone.
func (r *rest) placeOf(ctx context.Context, d deployment) string {
	e, err := r.environment(ctx, d.EnvironmentID)
	if err != nil {
		return d.EnvironmentID
	}
	return e.Slug
}

// deployments are those of an environment, the newest first.
func (r *rest) deployments(ctx context.Context, e environment) (list []deployment, err error) {
	if err := r.call(ctx, http.MethodGet, "/deployments?environment_id="+url.QueryEscape(e.ID), "", nil, &list); err != nil {
		return nil, fmt.Errorf("listing the deployments of environment %s: %w", e.Slug, err)
	}
	return list, nil
}

// deployment reads one.
func (r *rest) deployment(ctx context.Context, id string) (d deployment, err error) {
	if err := r.call(ctx, http.MethodGet, "/deployments/"+url.PathEscape(id), "", nil, &d); err != nil {
		return d, fmt.Errorf("reading deployment %s: %w", printable(id), err)
	}
	return d, nil
}
