// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	ConnectorResults []connectorResult `json:"connector_results"`

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

// short is the beginning of the commit, or of the digest of what was uploaded.
func (d deployment) short() string {
	if hash, uploaded := strings.CutPrefix(d.Source.Digest, "sha256:"); uploaded {
		return fmt.Sprintf("sha256:%.8s", printable(hash))
	}
	return fmt.Sprintf("%.8s", printable(d.Source.Commit))
}

// begins says whether the commit begins so or, of a text that does, sha256: and the digest of what
// was uploaded: that one is the choice of whoever uploads, and never stands for a commit.
func (d deployment) begins(text string) bool {
	of := d.Source.Commit
	if strings.HasPrefix(text, "sha256:") {
		of = d.Source.Digest
	}
	return text != "" && strings.HasPrefix(of, strings.ToLower(text))
}

// version is the short form, of a commit with the first line of its message.
func (d deployment) version() string {
	if d.Source.Digest != "" {
		return d.short()
	}
	subject, _, _ := strings.Cut(d.Source.CommitMessage, "\n")
	return strings.TrimSpace(d.short() + " " + clip(printable(subject), 50))
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
