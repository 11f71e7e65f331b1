// SPDX-License-Identifier: Apache-2.0

package runnerpool_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
)

func TestRunnerPool_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "runnerpool")
}

// scene is a namespace with a project and the controller of Environments.
type scene struct{ *environmenttest.Scene }

func newScene(ctx context.Context, changes ...func(*v1alpha1.Project)) *scene {
	GinkgoHelper()
	return &scene{environmenttest.NewWithProject(ctx, changes...)}
}
