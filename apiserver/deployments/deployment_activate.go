// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// ActivateInput is the request that makes a deployment live.
type ActivateInput struct {
	DeploymentPath
	Force bool `query:"force" default:"false" doc:"Activates the deployment even if connectors of its code cannot be applied. Such connectors stay as they are."`
}

var activateDeployment = rest.Handle((*API).activateDeployment, rest.Endpoint{
	Method: rest.Post, Path: "/deployments/{deployment_id}/activate", ID: "activateDeployment",
	Permissions: rest.Requires("deployments.activate"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "Activate a deployment",
	Doc: "Makes an earlier deployment the live deployment of its environment again, to roll back or forward. Connectors of its " +
		"code become as its files define them. If a connector cannot be applied, nothing changes and the call returns 409 " +
		"`connectors_failed`. With `force`, the deployment becomes live and such a connector stays as it is.\n\n" +
		"The call returns once the deployment is live. After two seconds it returns 503 `not_in_effect`, and the platform " +
		"activates the deployment as soon as possible. Send the same request again to wait for the same activation. After a " +
		"200 response, a repeated call with the same `Idempotency-Key` does nothing.\n\n" +
		"Further 409 codes are `not_deployed` if the deployment was never deployed, `bundle_gone` if its bundle is no longer " +
		"stored, `model_provider_missing` if an agent names a model whose provider the project does not have, and " +
		"`superseded` if another deployment was activated in the meantime.",
	Example: rest.Example{Path: "/deployments/{deployment}/activate"},
})

// activateDeployment makes a deployment live, for example in a rollback, and responds once it is live.
func (s *API) activateDeployment(ctx context.Context, c *rest.Caller, in *ActivateInput) (rest.Response[rest.Done], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	o, err := s.object(ctx, c, d)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if o != nil {
		if _, err := s.Service.IsRepeated(ctx, c, o); err != nil {
			return rest.Response[rest.Done]{}, err
		}
	}
	if before, err := s.succeededBefore(ctx, c, in.DeploymentID); before || err != nil {
		return rest.Response[rest.Done]{Body: rest.Done{OK: true}}, err // even if another deployment is live since
	}
	if o, err = s.activatable(ctx, c, d, o); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	live, err := s.lastDecision(ctx, d)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	_, err = s.Service.UpdateObject(ctx, c, o, func() error {
		if stands, err := s.isPending(ctx, c, d, o, live); err != nil || stands && o.Spec.Activation.Force == in.Force {
			return err // the same request continues its activation
		}
		if o.Spec.Activation.IsAhead(s.Service.Now()) {
			return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, fmt.Sprintf("spec.activation.requestedAt of Deployment %q is far in the future, "+
				"so no later activation is possible; remove its spec.activation and activate it again", o.Name))
		}
		own := d.ActivationRequestedAt // nil for a re-created object
		if o.Spec.Activation != nil && (own == nil || o.Spec.Activation.RequestedAt.After(*own)) {
			own = &o.Spec.Activation.RequestedAt.Time
		}
		o.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(decisionTime(s.Service.Now(), own, live)), Force: in.Force}
		return nil
	})
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if err := s.awaitActivation(ctx, o); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	after, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	shown := showDeployment(after, place{})
	rest.RecordChange(ctx, shown.Audited(), showDeployment(d, place{}), shown)
	return rest.Response[rest.Done]{Body: rest.Done{OK: true}}, nil
}

// succeededBefore reports whether the same call succeeded before. A call that failed or has no outcome may have done
// nothing, so it is repeated.
func (s *API) succeededBefore(ctx context.Context, c *rest.Caller, id rest.ID) (bool, error) {
	earlier, err := s.Service.EarlierCalls(ctx, c)
	return slices.ContainsFunc(earlier, func(e store.AuditEntry) bool {
		return e.Outcome != nil && e.Outcome.Status == c.Endpoint.Status && strings.EqualFold(e.Object.ID, id.String())
	}), err
}

// activatable returns the object of a deployment that can be live, and re-creates it if it was deleted.
func (s *API) activatable(ctx context.Context, c *rest.Caller, d store.Deployment, o *v1alpha1.Deployment) (*v1alpha1.Deployment, error) {
	if d.Status != store.DeploymentDeployed {
		return nil, rest.NewProblem(http.StatusConflict, httpserver.CodeNotDeployed, "only a deployment with status deployed can be activated; its status is "+statusText(d))
	}
	environment, err := s.Service.Environment(ctx, c, rest.ID(d.EnvironmentID))
	switch {
	case rest.IsNotFound(err):
		return nil, environmentGone
	case err != nil:
		return nil, err
	}
	bundle, err := s.Store.OpenBundle(ctx, d.ProjectID, d.BundleDigest)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, rest.NewProblem(http.StatusConflict, httpserver.CodeBundleGone,
			"the bundle of the deployment is no longer stored; redeploy the deployment to build it again")
	case err != nil:
		return nil, fmt.Errorf("looking for the bundle of deployment %s: %w", d.ID, err)
	}
	_ = bundle.Close() // nothing was read
	if o != nil {
		return o, nil
	}
	return s.recreate(ctx, c, d, environment.Name)
}

// recreate creates the object of a deployment again. The store has kept its outcome.
func (s *API) recreate(ctx context.Context, c *rest.Caller, d store.Deployment, environment string) (*v1alpha1.Deployment, error) {
	spec, err := originalSpec(d, environment)
	if err != nil {
		return nil, err
	}
	o := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.Namespace, Name: d.Ref.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
	}, Spec: spec}
	if v1alpha1.ProjectObjectID(c.ProjectID, store.KindDeployment, o.Name) != d.ID {
		o.Spec.ID = v1alpha1.UUID(d.ID.String())
	}
	made := rest.Creation{Service: s.Service, Caller: c}
	return o, made.Create(ctx, o)
}

// originalSpec returns the spec of a deployment. The store has branch and commit, but not whether the spec named them,
// so the fingerprint selects the spec.
func originalSpec(d store.Deployment, environment string) (v1alpha1.DeploymentSpec, error) {
	branch, commit := v1alpha1.GitBranch(d.Branch), v1alpha1.GitCommit(d.Commit)
	sources := []v1alpha1.DeploymentSource{uploadedSource(d.UploadDigest)}
	for _, git := range []v1alpha1.DeploymentGitSource{{}, {Branch: branch}, {Commit: commit}, {Branch: branch, Commit: commit}} {
		sources = append(sources, v1alpha1.DeploymentSource{Git: &git})
	}
	for _, source := range sources {
		spec := v1alpha1.DeploymentSpec{
			Environment: v1alpha1.EnvironmentName(environment), Source: source,
			SkipTests: d.SkipTests, SkipFailedConnectors: d.SkipFailedConnectors,
		}
		if d.RedeployOf != nil {
			spec.RedeployOf = v1alpha1.DeploymentID(d.RedeployOf.String())
		}
		if digest, err := spec.Fingerprint(); digest == d.Fingerprint || err != nil {
			return spec, err
		}
	}
	return v1alpha1.DeploymentSpec{}, rest.NewProblem(http.StatusConflict, httpserver.CodeGone,
		"the Deployment object was deleted, and its spec is unknown; redeploy the deployment")
}

// lastDecision returns when the activation of the live deployment was requested, or nil if the deployment activated
// itself.
func (s *API) lastDecision(ctx context.Context, d store.Deployment) (*time.Time, error) {
	environment, err := s.stored(ctx, d.Environment())
	id := environment.LiveDeploymentID
	if id == nil || err != nil {
		return nil, err
	}
	live, err := s.Store.Deployment(ctx, store.Key{ProjectID: d.ProjectID, ID: *id})
	if err != nil {
		return nil, fmt.Errorf("reading deployment %s: %w", *id, err)
	}
	return live.ActivationRequestedAt, nil
}

// isPending reports whether the activation in the object is pending and is the latest decision for its environment. live
// is the decision of the live deployment.
func (s *API) isPending(ctx context.Context, c *rest.Caller, d store.Deployment, o *v1alpha1.Deployment, live *time.Time) (bool, error) {
	if !o.ActivationPending() || o.Spec.Activation.IsAhead(s.Service.Now()) {
		return false, nil
	}
	asked := o.Spec.Activation.RequestedAt
	environment, err := s.Store.Environment(ctx, d.Environment())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, fmt.Errorf("reading environment %s: %w", d.EnvironmentID, err)
	}
	if since := environment.LiveActivatedAt; live != nil && live.After(asked.Time) || since != nil && since.After(asked.Add(time.Second)) {
		return false, nil // a restored object requests an activation that was completed before
	}
	var list v1alpha1.DeploymentList
	if err := s.Service.List(ctx, c, store.KindDeployment, &list, client.MatchingFields{"spec.environment": string(o.Spec.Environment)}); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(list.Items, func(other v1alpha1.Deployment) bool {
		return other.Name != o.Name && other.ActivationPending() && !other.Spec.Activation.RequestedAt.Before(&asked)
	}), nil
}

// decisionTime returns the time of a new activation, in the whole seconds of the object. It is at least a second after
// the last activation of the deployment, so that it counts as new, and not before the live deployment's, which would
// supersede it. A time far ahead of the clock does not count.
func decisionTime(now time.Time, own, live *time.Time) time.Time {
	at := now.Truncate(time.Second)
	if live != nil && live.After(at) && live.Sub(at) < rest.MaxClockSkew {
		at = live.Truncate(time.Second)
	}
	if own != nil && !at.After(*own) {
		at = own.Truncate(time.Second).Add(time.Second)
	}
	return at
}

// awaitActivation waits for the outcome of the requested activation. Its error says why the deployment is not live.
func (s *API) awaitActivation(ctx context.Context, o *v1alpha1.Deployment) error {
	var err error
	s.Service.Wait(ctx, func() bool {
		if o.ActivationPending() {
			err = s.Service.Reload(ctx, o)
		}
		return err != nil || !o.ActivationPending() || v1alpha1.IsStalled(o)
	})
	if err != nil {
		return fmt.Errorf("waiting for the activation of Deployment %q: %w", o.Name, err)
	}
	if o.ActivationPending() {
		return rest.NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotInEffect,
			"the activation is requested, but not complete ("+whyWaiting(o)+"); send the same request again to wait for it")
	}
	outcome := o.Status.Activation
	code, refused := activationCodes[outcome.Result]
	if !refused {
		return nil
	}
	return rest.NewProblem(http.StatusConflict, code, "the deployment is not live: "+outcome.Message)
}

// whyWaiting returns why an activation waits.
func whyWaiting(o v1alpha1.ConditionedObject) string {
	if v1alpha1.IsStalled(o) || !v1alpha1.IsReady(o) {
		return rest.NotReadyMessage(o)
	}
	return "the platform has not processed it yet"
}

// activationCodes are the codes of failed activations.
var activationCodes = map[v1alpha1.ActivationResult]httpserver.Code{
	v1alpha1.ActivationSuperseded:           httpserver.CodeSuperseded,
	v1alpha1.ActivationModelProviderMissing: httpserver.CodeModelProvider,
	v1alpha1.ActivationConnectorsFailed:     httpserver.CodeConnectorsFailed,
	v1alpha1.ActivationNotDeployed:          httpserver.CodeNotDeployed,
	v1alpha1.ActivationBundleGone:           httpserver.CodeBundleGone,
	v1alpha1.ActivationFailed:               httpserver.CodeConflict,
}
