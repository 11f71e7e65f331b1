// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// deployment is a deployment with the texts that commands show for it.
type deployment struct {
	restclient.Document[restclient.Deployment]
}

// stateText returns the status, or "live".
func (d deployment) stateText() string {
	if d.Value.IsLive {
		return "live"
	}
	return string(d.Value.Status)
}

// isOpen reports whether the deployment has not ended.
func (d deployment) isOpen() bool {
	return d.Value.Status == restclient.DeploymentStatusPending || d.Value.Status == restclient.DeploymentStatusBuilding
}

// isDeployed reports whether the deployment can go live.
func (d deployment) isDeployed() bool { return d.Value.Status == restclient.DeploymentStatusDeployed }

// commitHash returns the hash of the commit, "" of an upload.
func (d deployment) commitHash() string { return restclient.ValueOf(d.Value.Source.Commit) }

// uploadDigest returns the digest of the upload, "" of a commit.
func (d deployment) uploadDigest() string { return restclient.ValueOf(d.Value.Source.Digest) }

// message returns the explanation of the status.
func (d deployment) message() string { return restclient.ValueOf(d.Value.Message) }

// detailText returns the text after the state: the phase or the failure reason, and what an open deployment waits for.
func (d deployment) detailText() (text string) {
	if of := cmp.Or(string(restclient.ValueOf(d.Value.FailureReason)), string(restclient.ValueOf(d.Value.Phase))); of != "" {
		text = " (" + of + ")"
	}
	if d.isOpen() && d.message() != "" {
		text += ": " + printable(d.message())
	}
	return text
}

// shortVersion returns the beginning of the commit, or of the digest of the upload.
func (d deployment) shortVersion() string {
	if hash, uploaded := strings.CutPrefix(d.uploadDigest(), "sha256:"); uploaded {
		return fmt.Sprintf("sha256:%.8s", printable(hash))
	}
	return fmt.Sprintf("%.8s", printable(d.commitHash()))
}

// hasVersion reports whether the commit begins with text. A text with sha256: is compared with the digest of the upload only:
// the uploader chooses the digest, so it never stands for a commit.
func (d deployment) hasVersion(text string) bool {
	of := d.commitHash()
	if strings.HasPrefix(text, "sha256:") {
		of = d.uploadDigest()
	}
	return text != "" && strings.HasPrefix(of, strings.ToLower(text))
}

// version returns the short version, with the first line of the commit message.
func (d deployment) version() string {
	if d.uploadDigest() != "" {
		return d.shortVersion()
	}
	subject, _, _ := strings.Cut(restclient.ValueOf(d.Value.Source.CommitMessage), "\n")
	return strings.TrimSpace(d.shortVersion() + " " + shorten(printable(subject), 50))
}

// shorten cuts a text to a number of characters.
func shorten(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// listEnvironments returns the environments that the key can see.
func (c *apiClient) listEnvironments(ctx context.Context) ([]restclient.Environment, error) {
	list, err := c.ListEnvironments(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing environments: %w", err)
	}
	return list.Value, nil
}

// environmentName returns the slug of the environment of a deployment. It returns the ID if the key cannot see the environment,
// or if the environment is deleted.
func (c *apiClient) environmentName(ctx context.Context, d deployment) string {
	e, err := c.findEnvironment(ctx, "--environment", d.Value.EnvironmentID)
	if err != nil {
		return d.Value.EnvironmentID
	}
	return e.Slug
}

// listDeployments returns the deployments of an environment, newest first. A list has no build logs and no messages.
func (c *apiClient) listDeployments(ctx context.Context, e restclient.Environment) ([]deployment, error) {
	list, err := c.ListDeployments(ctx, &restclient.ListDeploymentsParams{EnvironmentID: e.ID})
	var documents []restclient.Document[restclient.Deployment]
	if err == nil {
		documents, err = restclient.Elements[restclient.Deployment](list)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the deployments of environment %s: %w", e.Slug, err)
	}
	deployments := make([]deployment, len(documents))
	for i := range documents {
		deployments[i] = deployment{documents[i]}
	}
	return deployments, nil
}

// readDeployment returns a deployment with its build log and message.
func (c *apiClient) readDeployment(ctx context.Context, id string) (deployment, error) {
	document, err := c.GetDeployment(ctx, id)
	if err != nil {
		return deployment{}, fmt.Errorf("reading deployment %s: %w", printable(id), err)
	}
	return deployment{document}, nil
}

// liveDeployment returns the live deployment of an environment, nil if there is none.
func (c *apiClient) liveDeployment(ctx context.Context, e restclient.Environment) (*deployment, error) {
	list, err := c.listDeployments(ctx, e)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Value.IsLive {
			return &list[i], nil
		}
	}
	return nil, nil
}
