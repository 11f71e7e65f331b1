// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// DeploymentCreate selects the version to deploy.
type DeploymentCreate struct {
	Commit rest.Change[string] `json:"commit,omitempty" minLength:"1" maxLength:"64" doc:"The full hash of the commit. Default: the latest commit of the branch." example:"4b825dc642cb6eb9a060e54bf8d69288fbee4904"`
	Branch rest.Change[string] `json:"branch,omitempty" minLength:"1" maxLength:"255" doc:"The branch. Default: the environment's branch, else the repository's default branch." example:"main"`
}

func (DeploymentCreate) Doc() string { return "The version to deploy." }

// TransformSchema implements huma.SchemaTransformer: the body can be null.
func (DeploymentCreate) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// DeploymentCreateInput is the request that creates a deployment.
type DeploymentCreateInput struct {
	rest.EnvironmentQuery
	Body *DeploymentCreate
}

var createDeployment = rest.Handle((*API).createDeployment, rest.Endpoint{
	Method: rest.Post, Path: "/deployments", ID: "createDeployment",
	Permissions: rest.Requires("deployments.create"), Effect: rest.EffectCreate, Status: 201, Errors: rest.CreateErrors,
	Summary: "Deploy a commit",
	Doc: "Builds a commit and makes it live. Without `commit`, this is the latest commit of `branch`, else of the environment's " +
		"`git_branch`, else of the repository's default branch. Pending and building deployments of the environment are " +
		"cancelled.\n\n" +
		"The call returns once the platform has started the deployment, or after two seconds. To learn the outcome, read the " +
		"deployment or follow its log. A deployment fails if its branch does not exist. In a suspended environment it stays " +
		"pending until the environment resumes.\n\n" +
		"Returns 400 if the project has no Git repository, 409 if the environment is not in effect, and 403 if its tests use " +
		"the variables of another environment that the key does not reach. Only uploads accept `skip_tests`.",
	Example: rest.Example{Path: "/deployments?environment_id={environment}", Body: `{"branch":"main"}`},
})

func (s *API) createDeployment(ctx context.Context, c *rest.Caller, in *DeploymentCreateInput) (rest.Response[Deployment], error) {
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	git := &v1alpha1.DeploymentGitSource{}
	if in.Body != nil {
		in.Body.Commit.ApplyTo(func(commit string) { git.Commit = v1alpha1.GitCommit(commit) })
		in.Body.Branch.ApplyTo(func(branch string) { git.Branch = v1alpha1.GitBranch(branch) })
	}
	return s.launch(ctx, c, environment, v1alpha1.DeploymentSpec{Source: v1alpha1.DeploymentSource{Git: git}})
}

var redeploy = rest.Handle((*API).redeploy, rest.Endpoint{
	Method: rest.Post, Path: "/deployments/{deployment_id}/redeploy", ID: "redeploy",
	Permissions: rest.Requires("deployments.redeploy"), Effect: rest.EffectCreate, Errors: rest.WithStatuses(rest.ActionErrors, 400),
	Summary: "Redeploy the same code",
	Doc: "Creates a deployment of the same commit in the same environment. If the original deployment never fetched a commit, " +
		"the new deployment builds what the original requested. An upload is deployed again; the call returns 409 " +
		"`upload_gone` if the upload is no longer stored. `skip_tests` and `skip_failed_connectors` are copied, and " +
		"`redeploy_of` names the original deployment. Everything else works as when you create a deployment.",
	Example: rest.Example{Path: "/deployments/{deployment}/redeploy"},
})

// redeploy deploys the source of a deployment again, with its skip flags, because a version from deploy-anyway would
// fail its tests again. A deployment of a branch is repeated with its commit.
func (s *API) redeploy(ctx context.Context, c *rest.Caller, in *DeploymentPath) (rest.Response[Deployment], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	spec, err := s.sameSource(ctx, d)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	return s.launchAgain(ctx, c, d, spec)
}

var deployAnyway = rest.Handle((*API).deployAnyway, rest.Endpoint{
	Method: rest.Post, Path: "/deployments/{deployment_id}/deploy-anyway", ID: "deployAnyway",
	Permissions: rest.Requires("deployments.override"), Effect: rest.EffectCreate, Errors: rest.WithStatuses(rest.ActionErrors, 400),
	Summary: "Deploy despite failed tests or connectors",
	Doc: "Creates a deployment of the same code that skips the test phase, or that leaves failing connectors as they are. The " +
		"original deployment must have failed with `tests_failed` or `connectors_failed`; the call returns 400 for other " +
		"deployments. Overrides of the original deployment also apply to the new one. `redeploy_of` names the original " +
		"deployment.",
	Example: rest.Example{Path: "/deployments/{failed_deployment}/deploy-anyway"},
})

// deployAnyway deploys code without the tests or the connectors that failed.
func (s *API) deployAnyway(ctx context.Context, c *rest.Caller, in *DeploymentPath) (rest.Response[Deployment], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	tests, connectors := d.FailureReason == store.FailureTests, d.FailureReason == store.FailureConnectors
	if !tests && !connectors {
		return rest.Response[Deployment]{}, rest.NewProblem(http.StatusBadRequest, httpserver.CodeNothingToOverride,
			"neither the tests nor the connectors of the deployment failed; its status is "+statusText(d))
	}
	spec, err := s.sameSource(ctx, d)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	spec.SkipTests, spec.SkipFailedConnectors = tests || spec.SkipTests, connectors || spec.SkipFailedConnectors
	return s.launchAgain(ctx, c, d, spec)
}

// sameSource returns the spec of a deployment of the same code with the same skip flags. It returns 409 if the upload is
// no longer stored.
func (s *API) sameSource(ctx context.Context, d store.Deployment) (v1alpha1.DeploymentSpec, error) {
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
	err := s.Store.HasUpload(ctx, d.ProjectID, d.UploadDigest)
	if errors.Is(err, store.ErrNotFound) {
		return spec, rest.NewProblem(http.StatusConflict, httpserver.CodeUploadGone, fmt.Sprintf(
			"the upload is no longer stored: it expires %d days after the last start of one of its deployments; upload the folder again", store.UploadKept/(24*time.Hour)))
	}
	if err != nil {
		return spec, fmt.Errorf("looking for the upload of deployment %s: %w", d.ID, err)
	}
	return spec, nil
}

// statusText returns the status of a deployment with its failure reason.
func statusText(d store.Deployment) string {
	if d.FailureReason != "" {
		return fmt.Sprintf("%s (%s)", d.Status, d.FailureReason)
	}
	return string(d.Status)
}

// launchAgain launches a deployment in the environment of another deployment.
func (s *API) launchAgain(ctx context.Context, c *rest.Caller, d store.Deployment, spec v1alpha1.DeploymentSpec) (rest.Response[Deployment], error) {
	environment, err := s.Service.Environment(ctx, c, rest.ID(d.EnvironmentID))
	if rest.IsNotFound(err) {
		return rest.Response[Deployment]{}, environmentGone
	}
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	return s.launch(ctx, c, environment, spec)
}

var environmentGone = rest.NewProblem(http.StatusConflict, httpserver.CodeGone, "the environment of the deployment was deleted")

// checkEnvironment returns 409 for an environment that is not in effect, and the error of CheckTestEnvironment.
func checkEnvironment(c *rest.Caller, environment *v1alpha1.Environment, skipTests bool) error {
	if err := rest.CheckTestEnvironment(c, environment, skipTests); err != nil || !rest.IsRejected(environment) {
		return err
	}
	return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the environment is not in effect: "+rest.NotReadyMessage(environment))
}

// launch creates a deployment and responds once the platform has started it, or after ReadyTimeout.
func (s *API) launch(ctx context.Context, c *rest.Caller, environment *v1alpha1.Environment, spec v1alpha1.DeploymentSpec) (rest.Response[Deployment], error) {
	project, err := s.Service.Project(ctx, c)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	if project.Spec.Git == nil && spec.Source.Git != nil {
		return rest.Response[Deployment]{}, rest.NewProblem(http.StatusBadRequest, httpserver.CodeNoGit,
			"the project has no git repository to deploy from; upload its folder (POST /deployments/upload, agentctl deploy --upload), or name a repository in spec.git of the Project")
	}
	if err := checkEnvironment(c, environment, spec.SkipTests); err != nil {
		return rest.Response[Deployment]{}, err
	}
	meta, id := c.NewMeta(ctx, "deployment", environment.Name)
	meta.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	spec.ID, spec.Environment = id, v1alpha1.EnvironmentName(environment.Name)
	o := &v1alpha1.Deployment{ObjectMeta: meta, Spec: spec}
	made := rest.Creation{Service: s.Service, Caller: c} // a deployment is one object, so nothing can be left over
	shown, err := s.makeDeployment(ctx, &made, o, environment)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	rest.RecordChange(ctx, shown.Audited(), nil, shown)
	return rest.Response[Deployment]{Location: "/deployments/" + shown.ID, Body: shown}, nil
}

// makeDeployment creates a deployment and waits for its start.
func (s *API) makeDeployment(ctx context.Context, n *rest.Creation, o *v1alpha1.Deployment, environment *v1alpha1.Environment) (Deployment, error) {
	if err := n.Create(ctx, o); err != nil {
		return Deployment{}, err
	}
	d := asPending(n.Caller, o, environment)
	err := store.ErrNotFound
	n.Service.Wait(ctx, func() bool {
		var begun store.Deployment
		if begun, err = s.Store.Deployment(ctx, d.Key()); err == nil {
			d = begun
		}
		return !errors.Is(err, store.ErrNotFound)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Deployment{}, fmt.Errorf("reading deployment %s: %w", d.ID, err)
	}
	return s.wholeDeployment(ctx, n.Caller, d)
}
