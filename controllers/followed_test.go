// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/gitfollower"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// followed reads the time until the next poll of a repository whose branch an environment follows.
func followed(seconds *int32, want time.Duration) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Git.AutoDeploy, e.Spec.Git.IntervalSeconds = true, seconds })
		s.ExpectApplied(ctx, e)
		defer s.ExpectGone(ctx, e)
		branches := &gitfollower.Reconciler{
			Base: s.Base, Guard: egress.New(egress.Rules{}), Heads: gitfollower.NewHeads(), Changed: environmenttest.On(s.Fixture).Changed, Metrics: metrics.NewManager(nil),
		}
		project := s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.Git = &v1alpha1.ProjectGit{URL: "https://127.0.0.1/x.git"} }) // forbidden
		return s.ExpectReconciled(ctx, branches, project).RequeueAfter.Truncate(want)
	}, Equal(want)}
}
