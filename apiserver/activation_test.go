// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// second makes another deployment live, of the same bundle.
func (p *past) second(t testing.TB) string {
	t.Helper()
	key := p.start(t, "production-2")
	first, err := p.db.Deployment(t.Context(), store.Key{ProjectID: p.projectID, ID: p.id(t, "deployment")})
	require.NoError(t, err)
	require.NoError(t, p.db.FinishBuild(t.Context(), key, store.BuildResult{BundleDigest: first.BundleDigest, Agents: first.Agents}))
	_, err = p.db.Activate(t.Context(), store.Activation{Deployment: key})
	require.NoError(t, err)
	return key.ID.String()
}

func (p *past) liveNow(t testing.TB) string {
	t.Helper()
	e, err := p.db.Environment(t.Context(), store.Key{ProjectID: p.projectID, ID: p.id(t, "environment")})
	require.NoError(t, err)
	return e.LiveDeploymentID.String()
}

func TestADeploymentIsActivated(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, first, second := w.key(t, nil), w.ids["deployment"], w.second(t)
	require.Equal(t, second, w.liveNow(t))
	for _, id := range []string{first, second, first, first, second} { // within one second, as likely as not
		require.True(t, w.ok(t, key, "/deployments/"+id+"/activate"))
		require.Equal(t, id, w.liveNow(t))
	}
	require.False(t, w.deploymentObject(t, first).Spec.Activation.Force)
	require.True(t, w.ok(t, key, "/deployments/"+first+"/activate?force=true", "Idempotency-Key", "k"))
	require.True(t, w.deploymentObject(t, first).Spec.Activation.Force)
	require.True(t, w.ok(t, key, "/deployments/"+second+"/activate?force=false"))
	require.True(t, w.ok(t, key, "/deployments/"+first+"/activate?force=true", "Idempotency-Key", "k"))
	require.Equal(t, second, w.liveNow(t), "a repetition does nothing")
	requireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.world, key, http.MethodPost, "/deployments/"+first+"/activate", "", "Idempotency-Key", "k")
	requireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.world, key, http.MethodPost, "/deployments/"+second+"/activate?force=true", "", "Idempotency-Key", "k")
	for _, id := range []string{w.building(t).String(), w.failTests(t).String()} {
		requireCode(t, http.StatusConflict, httpserver.CodeNotDeployed, w.world, key, http.MethodPost, "/deployments/"+id+"/activate", "")
	}
}

// TestWhatIsPrunedIsActivatedToo: its object is made again, as it was.
func TestWhatIsPrunedIsActivatedToo(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, first := w.key(t, nil), w.ids["deployment"]
	now := time.Now()
	w.server.now = func() time.Time { return now } // all within one second
	second := w.second(t)
	require.True(t, w.ok(t, key, "/deployments/"+first+"/activate"))
	require.True(t, w.ok(t, key, "/deployments/"+second+"/activate"))
	was := w.deploymentObject(t, first)
	require.NoError(t, w.client.Delete(t.Context(), was))
	require.NoError(t, w.db.Remove(t.Context(), w.projectID, w.ref(was)))
	require.Equal(t, first, w.shownDeployment(t, key, first).ID, "the store knows it")
	require.True(t, w.ok(t, key, "/deployments/"+first+"/activate", "Idempotency-Key", "k"))
	require.Equal(t, first, w.liveNow(t))
	is := w.deploymentObject(t, first)
	require.NotNil(t, is)
	require.NotEqual(t, was.UID, is.UID)
	require.Equal(t, was.Name, is.Name)
	require.Equal(t, was.Spec.Source, is.Spec.Source)
	require.Equal(t, v1alpha1.ManagedBy, is.Labels[v1alpha1.LabelManagedBy])
	_, err := w.begin(t.Context(), is)
	require.NoError(t, err, "to the store it is the same one")

	require.NoError(t, w.client.Delete(t.Context(), is))
	require.NoError(t, w.db.Remove(t.Context(), w.projectID, w.ref(is)))
	require.True(t, w.ok(t, key, "/deployments/"+first+"/activate", "Idempotency-Key", "k"))
	require.Nil(t, w.deploymentObject(t, first), "a repetition does nothing")

	w.exec(t, `DELETE FROM bundles`)
	requireCode(t, http.StatusConflict, httpserver.CodeBundleGone, w.world, key, http.MethodPost, "/deployments/"+first+"/activate", "")
	require.Nil(t, w.deploymentObject(t, first))
}

// TestTheSpecOfAPrunedDeploymentIsFoundAgain: whichever of branch and commit stood in it.
func TestTheSpecOfAPrunedDeploymentIsFoundAgain(t *testing.T) {
	t.Parallel()
	of := uuid.New()
	for _, git := range []v1alpha1.DeploymentGitSource{{}, {Branch: "main"}, {Commit: "abc"}, {Branch: "main", Commit: "abc"}} {
		want := v1alpha1.DeploymentSpec{
			Environment: "production", Source: v1alpha1.DeploymentSource{Git: &git}, RedeployOf: v1alpha1.DeploymentID(of.String()), SkipTests: true,
		}
		digest, err := want.Fingerprint()
		require.NoError(t, err)
		d := store.Deployment{DeploymentSpec: store.DeploymentSpec{Fingerprint: digest, Branch: "main", Commit: "abc", RedeployOf: &of, SkipTests: true}}
		got, err := specBefore(d, "production")
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = specBefore(d, "staging")
		require.Error(t, err)
	}
}

// TestAnActivationThatIsRefusedSaysWhy: in the controller's words.
func TestAnActivationThatIsRefusedSaysWhy(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, first := w.key(t, nil), w.ids["deployment"]
	second := w.second(t)
	path := "/deployments/" + first + "/activate"
	for result, code := range activationCodes {
		w.server.client = interceptor.NewClient(w.alone, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := c.Patch(ctx, o, p, opts...); err != nil {
					return err
				}
				d := o.(*v1alpha1.Deployment)
				d.MarkActivation(result, "because of that")
				return w.client.Status().Update(ctx, d)
			},
		})
		p := requireCode(t, http.StatusConflict, code, w.world, key, http.MethodPost, path, "", "Idempotency-Key", string(result))
		require.Contains(t, p.Detail, "because of that")
		requireCode(t, http.StatusConflict, code, w.world, key, http.MethodPost, path, "", "Idempotency-Key", string(result))
	}
	w.server.client = w.alone // nobody is there
	p := requireCode(t, http.StatusServiceUnavailable, httpserver.CodeNotInEffect, w.world, key, http.MethodPost, path, "", "Idempotency-Key", "k")
	require.Contains(t, p.Detail, "not carried out yet")
	asked := w.deploymentObject(t, first).Spec.Activation.RequestedAt
	require.Equal(t, second, w.liveNow(t))
	require.NoError(t, w.bringOn(t.Context(), w.settled(t, first)))
	require.True(t, w.ok(t, key, path, "Idempotency-Key", "k"), "the repetition learns of it")
	require.Equal(t, asked, w.deploymentObject(t, first).Spec.Activation.RequestedAt, "and asks for nothing")
}

// settled is an object whose activation its controller has carried out.
func (w *world) settled(t testing.TB, id string) *v1alpha1.Deployment {
	t.Helper()
	o := w.deploymentObject(t, id)
	require.NoError(t, w.bringOn(t.Context(), o))
	require.NoError(t, w.client.Status().Update(t.Context(), o))
	return o
}

// TestWhatIsAskedForStandsUntilItIsDone: a repetition waits for the same, as long as nobody wants anything else.
func TestWhatIsAskedForStandsUntilItIsDone(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, first := w.key(t, nil), w.ids["deployment"]
	second := w.second(t)
	now := time.Now().Add(time.Hour) // long after what is live
	w.server.now = func() time.Time { return now }
	w.server.client = w.alone // nobody is there
	ask := func(id, query string) (at time.Time) {
		now = now.Add(3 * time.Second)
		requireCode(t, http.StatusServiceUnavailable, httpserver.CodeNotInEffect, w.world, key, http.MethodPost, "/deployments/"+id+"/activate"+query, "")
		return w.deploymentObject(t, id).Spec.Activation.RequestedAt.Time
	}
	asked := ask(first, "")
	require.Equal(t, asked, ask(first, ""))
	requireCode(t, http.StatusServiceUnavailable, httpserver.CodeNotInEffect, w.world, key, http.MethodPost, "/deployments/"+first+"/activate", "", "Idempotency-Key", "k")
	require.Equal(t, asked, w.deploymentObject(t, first).Spec.Activation.RequestedAt.Time, "whatever key it has")
	forced := ask(first, "?force=true")
	require.True(t, forced.After(asked), "what is asked for is another thing")
	require.Equal(t, forced, ask(first, "?force=true"))
	require.True(t, w.deploymentObject(t, first).Spec.Activation.Force)

	other := ask(second, "")
	again := ask(first, "?force=true")
	require.True(t, again.After(other), "the last word counts")
	require.Equal(t, again, ask(first, "?force=true"))

	w.settled(t, first)
	require.Equal(t, first, w.liveNow(t))
	require.True(t, ask(second, "").After(again), "it would be superseded by what is live")
	o := w.deploymentObject(t, second)
	o.Spec.Activation = nil
	require.NoError(t, w.client.Update(t.Context(), o))
	o = w.deploymentObject(t, first)
	o.Status.Activation = nil // as of one that was restored
	require.NoError(t, w.client.Status().Update(t.Context(), o))
	w.exec(t, `UPDATE environments SET live_activated_at = live_activated_at + 86400000000`)
	require.True(t, ask(first, "?force=true").After(again), "it was done before what is live")
}

// TestADecisionComesAfterTheOneBefore: in the whole seconds that objects keep.
func TestADecisionComesAfterTheOneBefore(t *testing.T) {
	t.Parallel()
	second := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) *time.Time {
		out := second.Add(time.Duration(seconds * float64(time.Second)))
		return &out
	}
	for name, c := range map[string]struct {
		own, live *time.Time
		want      float64
	}{
		"the first":                           {nil, nil, 0},
		"long after":                          {at(-60), at(-30), 0},
		"once more in that second":            {at(0), nil, 1},
		"once more after that":                {at(1), nil, 2},
		"after that of what is live":          {nil, at(1), 1},
		"after both":                          {at(1), at(1), 2},
		"what is live was asked for far away": {nil, at(3600), 0},
		"a clock far ahead asked for this":    {at(3600), nil, 3601},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, *at(c.want), decisionTime(second.Add(900*time.Millisecond), c.own, c.live))
		})
	}
}

// TestAFieldThatGitOwnsIsNotActivated: it would be undone.
func TestAFieldThatGitOwnsIsNotActivated(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	first := w.ids["deployment"]
	w.second(t)
	o := w.deploymentObject(t, first)
	before := o.DeepCopy()
	o.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Unix(1_700_000_000, 0))}
	require.NoError(t, w.client.Patch(t.Context(), o, client.MergeFrom(before), client.FieldOwner("argocd-controller")))
	p := requireCode(t, http.StatusConflict, httpserver.CodeGitOps, w.world, w.key(t, nil), http.MethodPost, "/deployments/"+first+"/activate", "")
	require.Contains(t, p.Detail, "argocd-controller owns spec.activation")
}

// TestWhatWasAskedForInTheFutureIsInTheWay: no later time could be asked for, and who reads how says so.
func TestWhatWasAskedForInTheFutureIsInTheWay(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	first := w.ids["deployment"]
	second := w.second(t)
	o := w.deploymentObject(t, first)
	o.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))}
	o.MarkActivationAhead()
	require.NoError(t, w.client.Update(t.Context(), o))
	p := requireCode(t, http.StatusConflict, httpserver.CodeConflict, w.world, w.key(t, nil), http.MethodPost, "/deployments/"+first+"/activate", "")
	require.Contains(t, p.Detail, "remove its spec.activation")
	require.Equal(t, second, w.liveNow(t))
}
