// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/store"
)

// deploymentModelPromises compare an engine with a model of an environment's deployments, over
// random histories.
var deploymentModelPromises = []promise{
	{"deployments behave like the model", func(w *world) {
		rapid.Check(w.t, func(rt *rapid.T) {
			m := newDeploymentModel(rt, w)
			rt.Repeat(map[string]func(*rapid.T){
				"begin": m.beginDeployment, "deploy": m.deployNext, "begin again": m.beginAgain, "start": m.startBuild, "succeed": m.succeed, "fail": m.failBuild,
				"end": m.endDeployment, "delete": m.deleteObject, "activate": m.activate, "decide": m.requestActivation, "restore": m.restore,
				"delete the environment": m.deleteEnvironment, "": m.compare,
			})
		})
	}},
}

// modelDeployment is the state of a deployment.
type modelDeployment struct {
	spec   store.DeploymentSpec
	status store.DeploymentStatus
	built  bool
	// begun orders deployments and user requests by time. rank is the rank of the highest
	// activation, 0 before the first.
	begun, rank int
	decided     time.Time // the time of the last request
	deleted     bool      // the reason of its end
}

// deploymentModel has the deployments of one environment.
type deploymentModel struct {
	*world
	all   []*modelDeployment
	clock int
	// there reports whether the environment exists. live is its live deployment, nil without one.
	// wasLive means that there was one since it exists.
	there, wasLive bool
	live           *modelDeployment
	digest         string
	seen           map[uuid.UUID]store.DeploymentStatus
}

func newDeploymentModel(rt *rapid.T, of *world) *deploymentModel {
	w := *of
	w.Assertions = require.New(rt)
	w.environment = w.newEnvironment("e-"+uuid.NewString(), origin)
	w.NoError(w.s.PutEnvironment(w.ctx, w.environment))
	return &deploymentModel{world: &w, there: true, digest: w.putBundle("bundle"), seen: map[uuid.UUID]store.DeploymentStatus{}}
}

// nextPosition returns the next position in the order of events.
func (m *deploymentModel) nextPosition() int {
	m.clock++
	return m.clock
}

func (m *deploymentModel) beginDeployment(rt *rapid.T) {
	if !m.there {
		rt.Skip("there is no environment")
	}
	d := &modelDeployment{spec: m.newDeployment("d-" + uuid.NewString()), status: store.DeploymentPending, begun: m.nextPosition()}
	m.Equal(store.DeploymentPending, m.world.beginDeployment(d.spec).Status)
	m.cancelOpen()
	m.all = append(m.all, d)
}

// deployNext deploys a new deployment without failures, so that histories have live deployments.
func (m *deploymentModel) deployNext(rt *rapid.T) {
	m.beginDeployment(rt)
	d := m.all[len(m.all)-1]
	m.checkMove(m.s.StartBuild(m.ctx, d.spec.Key(), ""), true, func() { d.status = store.DeploymentBuilding })
	m.checkMove(m.s.FinishBuild(m.ctx, d.spec.Key(), store.BuildResult{BundleDigest: m.digest}), true, func() { d.built = true })
	if rapid.Bool().Draw(rt, "goes live") {
		m.makeLive(d, nil)
	}
}

// cancelOpen cancels open deployments, as a newer deployment and the deletion of the environment
// do.
func (m *deploymentModel) cancelOpen() {
	for _, d := range m.all {
		if !d.status.Terminal() {
			d.status = store.DeploymentCancelled
		}
	}
}

func (m *deploymentModel) drawDeployment(rt *rapid.T) *modelDeployment {
	if len(m.all) == 0 {
		rt.Skip("no deployment yet")
	}
	return rapid.SampledFrom(m.all).Draw(rt, "deployment")
}

// beginAgain is a reconciliation, or a re-created object. Only a deployment that was deleted before
// its end, without another reason, begins again.
func (m *deploymentModel) beginAgain(rt *rapid.T) {
	d := m.drawDeployment(rt)
	if d.deleted && d.status == store.DeploymentCancelled {
		if !m.there {
			rt.Skip("there is no environment")
		}
		delete(m.seen, d.spec.ID) // it is another object
		m.cancelOpen()
		*d = modelDeployment{spec: d.spec, status: store.DeploymentPending, begun: m.nextPosition()}
		d.spec.Ref.ObjectUID = uuid.NewString()
	}
	m.Equal(d.status, m.world.beginDeployment(d.spec).Status)
}

// checkMove makes a move in the model if it is allowed, and checks the error of the store.
func (m *deploymentModel) checkMove(err error, allowed bool, move func()) {
	if !allowed {
		m.ErrorIs(err, store.ErrConflict)
		return
	}
	m.NoError(err)
	move()
}

func (m *deploymentModel) startBuild(rt *rapid.T) {
	d := m.drawDeployment(rt)
	m.checkMove(m.s.StartBuild(m.ctx, d.spec.Key(), ""), !d.status.Terminal(), func() { d.status = store.DeploymentBuilding })
}

func (m *deploymentModel) succeed(rt *rapid.T) {
	d := m.drawDeployment(rt)
	err := m.s.FinishBuild(m.ctx, d.spec.Key(), store.BuildResult{BundleDigest: m.digest})
	m.checkMove(err, d.built || d.status == store.DeploymentBuilding, func() { d.built = true })
}

func (m *deploymentModel) failBuild(rt *rapid.T) {
	d := m.drawDeployment(rt)
	reason := rapid.SampledFrom([]store.FailureReason{store.FailureBuild, store.FailureTests}).Draw(rt, "reason")
	before := m.deployment(d.spec.ID)
	repeated := before.Status == store.DeploymentFailed && before.FailureReason == reason
	err := m.s.FinishBuild(m.ctx, d.spec.Key(), store.BuildResult{FailureReason: reason, Message: "no"})
	m.checkMove(err, repeated || d.status == store.DeploymentBuilding && !d.built, func() { d.status = store.DeploymentFailed })
}

func (m *deploymentModel) endDeployment(rt *rapid.T) {
	d := m.drawDeployment(rt)
	as := rapid.SampledFrom([]store.DeploymentStatus{store.DeploymentCancelled, store.DeploymentFailed}).Draw(rt, "as")
	m.checkMove(m.s.EndDeployment(m.ctx, d.spec.Key(), as, store.FailureDeadline, "enough"), !d.status.Terminal(), func() { d.status = as })
}

// deleteObject deletes the object. Ended and live deployments stay unchanged.
func (m *deploymentModel) deleteObject(rt *rapid.T) {
	d := m.drawDeployment(rt)
	m.NoError(m.s.Remove(m.ctx, m.project.ID, d.spec.Ref))
	if !d.status.Terminal() {
		d.status, d.deleted = store.DeploymentCancelled, true
	}
}

// activate is a deployment's own activation, also after a restore.
func (m *deploymentModel) activate(rt *rapid.T) { m.makeLive(m.drawDeployment(rt), nil) }

// requestActivation requests an activation as a user does. A request with the same time is a duplicate.
func (m *deploymentModel) requestActivation(rt *rapid.T) {
	at := time.Unix(int64(1_700_000_000+rapid.IntRange(0, 3).Draw(rt, "at")), 0).UTC()
	m.makeLive(m.drawDeployment(rt), &at)
}

func (m *deploymentModel) makeLive(d *modelDeployment, at *time.Time) {
	result, err := m.s.Activate(m.ctx, store.Activation{Deployment: d.spec.Key(), RequestedAt: at})
	possible := d.status == store.DeploymentDeployed || d.status == store.DeploymentBuilding && d.built
	if possible && !m.there {
		m.ErrorIs(err, store.ErrNotFound)
		return
	}
	m.checkMove(err, possible, func() {
		rank := d.begun
		if at != nil && !at.Equal(d.decided) {
			rank, d.decided = m.nextPosition(), *at
		}
		d.status, d.rank = store.DeploymentDeployed, max(d.rank, rank)
		if m.live == nil || d.rank > m.live.rank {
			m.live, m.wasLive = d, true
		}
		m.Equal(m.live == d, result.Live)
	})
}

func (m *deploymentModel) deleteEnvironment(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		rt.Skip("it stays")
	}
	m.NoError(m.s.Remove(m.ctx, m.project.ID, m.environment.Ref))
	if m.there {
		m.cancelOpen()
	}
	m.there, m.wasLive, m.live = false, false, nil
}

// restore re-creates the environment, and then the deployments, in any order: the last live one is
// live again.
func (m *deploymentModel) restore(rt *rapid.T) {
	if m.there {
		rt.Skip("the environment exists")
	}
	m.environment.Ref.ObjectUID = uuid.NewString()
	m.NoError(m.s.PutEnvironment(m.ctx, m.environment))
	m.there = true
	order := slices.Clone(m.all)
	for i := range order {
		j := rapid.IntRange(i, len(order)-1).Draw(rt, "next")
		order[i], order[j] = order[j], order[i]
		if order[i].status == store.DeploymentDeployed {
			m.makeLive(order[i], nil)
		}
	}
}

// compare compares the store with the model, and checks that each move is allowed.
func (m *deploymentModel) compare(*rapid.T) {
	for _, d := range m.all {
		is := m.deployment(d.spec.ID)
		m.Equal(d.status, is.Status)
		m.Equal(d.built, is.Built)
		m.Equal(is.Status.Terminal(), is.EndedAt != nil)
		before, known := m.seen[d.spec.ID]
		m.True(!known || before == is.Status || before.CanBecome(is.Status), "%s became %s", before, is.Status)
		m.seen[d.spec.ID] = is.Status
	}
	if !m.there {
		m.ErrorIs(errorOf(m.s.Environment(m.ctx, m.environment.Key())), store.ErrNotFound)
		return
	}
	e := m.readEnvironment(m.environment.Key())
	m.Equal(m.wasLive, e.LiveDeploymentID != nil, "something is live since the first activation")
	if m.live != nil {
		m.Equal(m.live.spec.ID, *e.LiveDeploymentID, "only the last activated one is live")
	}
}
