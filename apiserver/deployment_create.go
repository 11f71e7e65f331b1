// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// DeploymentCreate says which version is deployed.
type DeploymentCreate struct {
	Commit Change[string] `json:"commit,omitempty" minLength:"1" maxLength:"64" doc:"The full hash of the commit; without it the branch's latest." example:"4b825dc642cb6eb9a060e54bf8d69288fbee4904"`
	Branch Change[string] `json:"branch,omitempty" minLength:"1" maxLength:"255" doc:"The branch; without it the environment's, else the repository's default branch." example:"main"`
}

// TransformSchema implements huma.SchemaTransformer: the body may be null, which is none.
func (DeploymentCreate) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// DeploymentCreateInput is the request that creates a deployment.
type DeploymentCreateInput struct {
	EnvironmentQuery
	Body *DeploymentCreate
}

func (s *Server) createDeployment(ctx context.Context, c *caller, in *DeploymentCreateInput) (answer[Deployment], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Deployment]{}, err
	}
	git := &v1alpha1.DeploymentGitSource{}
	if in.Body != nil {
		in.Body.Commit.applyTo(func(commit string) { git.Commit = v1alpha1.GitCommit(commit) })
		in.Body.Branch.applyTo(func(branch string) { git.Branch = v1alpha1.GitBranch(branch) })
	}
	return s.launch(ctx, c, environment, v1alpha1.DeploymentSpec{Source: v1alpha1.DeploymentSource{Git: git}})
}

// redeploy deploys the source of a deployment again, with its skip flags: a version that went live by
// deploy-anyway would fail its tests otherwise. A deployment of a branch is repeated with the commit that
// was the head then.
func (s *Server) redeploy(ctx context.Context, c *caller, in *DeploymentPath) (answer[Deployment], error) {
	d, err := s.deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return answer[Deployment]{}, err
	}
	spec, err := s.sameSource(ctx, d)
	if err != nil {
		return answer[Deployment]{}, err
	}
	return s.launchAgain(ctx, c, d, spec)
}

// deployAnyway deploys what failed its tests, or the check of its connectors, without that.
func (s *Server) deployAnyway(ctx context.Context, c *caller, in *DeploymentPath) (answer[Deployment], error) {
	d, err := s.deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return answer[Deployment]{}, err
	}
	tests, connectors := d.FailureReason == store.FailureTests, d.FailureReason == store.FailureConnectors
	if !tests && !connectors {
		return answer[Deployment]{}, problem(http.StatusBadRequest, httpserver.CodeNothingToOverride,
			"neither the tests nor the connectors of the deployment failed: it is "+standing(d))
	}
	spec, err := s.sameSource(ctx, d)
	if err != nil {
		return answer[Deployment]{}, err
	}
	spec.SkipTests, spec.SkipFailedConnectors = tests || spec.SkipTests, connectors || spec.SkipFailedConnectors
	return s.launchAgain(ctx, c, d, spec)
}

// sameSource is the spec of a deployment of the same code that skips what d skipped; 409 if the code was
// uploaded and the upload is not kept any more.
func (s *Server) sameSource(ctx context.Context, d store.Deployment) (v1alpha1.DeploymentSpec, error) {
	spec := v1alpha1.DeploymentSpec{
		RedeployOf: v1alpha1.DeploymentID(d.ID.String()), SkipTests: d.SkipTests, SkipFailedConnectors: d.SkipFailedConnectors,
	}
	if d.UploadDigest == "" {
		spec.Source.Git = &v1alpha1.DeploymentGitSource{
			Branch: v1alpha1.GitBranch(d.Branch), Commit: v1alpha1.GitCommit(cmp.Or(d.ResolvedCommit, d.Commit)),
		}
		return spec, nil
	}
	spec.Source = uploadedSource(d.UploadDigest)
	err := s.store.HasUpload(ctx, d.ProjectID, d.UploadDigest)
	if errors.Is(err, store.ErrNotFound) {
		return spec, problem(http.StatusConflict, httpserver.CodeUploadGone, fmt.Sprintf(
			"what was uploaded is not stored any more: it is kept for %d days after a deployment of it last began; upload the folder again", store.UploadKept/(24*time.Hour)))
	}
	if err != nil {
		return spec, fmt.Errorf("looking for the upload of deployment %s: %w", d.ID, err)
	}
	return spec, nil
}

// standing says of a deployment where it stands.
func standing(d store.Deployment) string {
	if d.FailureReason != "" {
		return fmt.Sprintf("%s (%s)", d.Status, d.FailureReason)
	}
	return string(d.Status)
}

// launchAgain launches a deployment into the environment of another one.
func (s *Server) launchAgain(ctx context.Context, c *caller, d store.Deployment, spec v1alpha1.DeploymentSpec) (answer[Deployment], error) {
	environment, err := s.environment(ctx, c, ID(d.EnvironmentID))
	if isNotFound(err) {
		return answer[Deployment]{}, environmentGone
	}
	if err != nil {
		return answer[Deployment]{}, err
	}
	return s.launch(ctx, c, environment, spec)
}

var environmentGone = problem(http.StatusConflict, httpserver.CodeGone, "the environment of the deployment is deleted")

// mayTest says 403 where the tests of an environment would be run with what another one has that
// the key does not reach: what they log is shown.
func (c *caller) mayTest(environment *v1alpha1.Environment, skipTests bool) error {
	if with := environment.Spec.TestEnvironment; with != "" && !skipTests && !c.reaches(string(with)) {
		return problem(http.StatusForbidden, httpserver.CodeForbidden,
			"the tests of this environment are run with the model providers and variables of another one (its testEnvironment), which the key does not reach")
	}
	return nil
}

// mayDeployTo says 409 of an environment that is not in effect, and what mayTest says.
func (c *caller) mayDeployTo(environment *v1alpha1.Environment, skipTests bool) error {
	if err := c.mayTest(environment, skipTests); err != nil || notTakenUp(environment) == nil {
		return err
	}
	return problem(http.StatusConflict, httpserver.CodeConflict, "the environment is not in effect: "+whyNotReady(environment))
}

// launch creates a deployment to an environment, and answers with it once the platform has
// begun it, or after readyTimeout.
func (s *Server) launch(ctx context.Context, c *caller, environment *v1alpha1.Environment, spec v1alpha1.DeploymentSpec) (answer[Deployment], error) {
	project, err := s.project(ctx, c)
	if err != nil {
		return answer[Deployment]{}, err
	}
	if project.Spec.Git == nil && spec.Source.Git != nil {
		return answer[Deployment]{}, problem(http.StatusBadRequest, httpserver.CodeNoGit,
			"the project has no git repository to deploy from; upload its folder (POST /deployments/upload, agentctl deploy --upload), or name a repository in spec.git of the Project")
	}
	if err := c.mayDeployTo(environment, spec.SkipTests); err != nil {
		return answer[Deployment]{}, err
	}
	meta, id := c.meta(ctx, "deployment", environment.Name)
	meta.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	spec.ID, spec.Environment = id, v1alpha1.EnvironmentName(environment.Name)
	o := &v1alpha1.Deployment{ObjectMeta: meta, Spec: spec}
	made := creation{Server: s, caller: c} // whole with its one object, so nothing is taken back
	shown, err := made.deployment(ctx, o, environment)
	if err != nil {
		return answer[Deployment]{}, err
	}
	changed(ctx, shown.audited(), nil, shown)
	return answer[Deployment]{Location: "/deployments/" + shown.ID, Body: shown}, nil
}

// deployment creates a deployment, and waits for its beginning.
func (n *creation) deployment(ctx context.Context, o *v1alpha1.Deployment, environment *v1alpha1.Environment) (Deployment, error) {
	if err := n.create(ctx, o); err != nil {
		return Deployment{}, err
	}
	d := asPending(n.caller, o, environment)
	err := store.ErrNotFound
	n.await(ctx, func() bool {
		var begun store.Deployment
		if begun, err = n.store.Deployment(ctx, d.Key()); err == nil {
			d = begun
		}
		return !errors.Is(err, store.ErrNotFound)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Deployment{}, fmt.Errorf("reading deployment %s: %w", d.ID, err)
	}
	return n.wholeDeployment(ctx, n.caller, d)
}
