// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

// testEnvironment names the environment whose configuration the tests are run with;
// "" where the test phase is left out. It waits for the configuration where the project
// has model providers, or the environment variables: without it, tests that need them
// would fail.
func (r *Reconciler) testEnvironment(ctx context.Context, v *version) (string, error) {
	if v.Spec.SkipTests {
		return "", nil
	}
	name := cmp.Or(v.environment.Spec.TestEnvironment, v.Spec.Environment)
	of := v.environment
	if name != v.Spec.Environment {
		var err error
		if of, _, err = r.Environment(ctx, v.Namespace, name); err != nil {
			return "", err
		}
	}
	if len(v.project.Spec.ModelProviders) == 0 && len(of.Spec.Variables) == 0 {
		return string(name), nil
	}
	config := &metav1.PartialObjectMetadata{}
	config.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: object.RunnerConfig(string(name))}, config)
	if apierrors.IsNotFound(err) {
		return "", &object.WaitingError{Message: fmt.Sprintf(
			"the tests need the model providers and variables of Environment %q, whose runners do not have them yet; see what it says, or set spec.skipTests", name)}
	}
	if err != nil {
		return "", fmt.Errorf("looking for the configuration of the runners of Environment %q: %w", name, err)
	}
	if !metav1.IsControlledBy(config, of) {
		return "", &object.WaitingError{Message: fmt.Sprintf(
			"the tests need the model providers and variables of Environment %q, and Secret %q, which is to have them, is somebody else's: delete or rename it, or set spec.skipTests", name, config.Name)}
	}
	return string(name), nil
}

// mirrorTests shows how many tests there were, once the build has told. A claim's answer
// has no results: they are read until the condition says what came of them.
func (r *Reconciler) mirrorTests(ctx context.Context, v *version) error {
	told := v.Status.Condition(v1alpha1.ConditionTestsPassed)
	if !v.outcome.Built && !v.outcome.Status.Terminal() || told != nil && told.Status != metav1.ConditionUnknown {
		return nil
	}
	whole, err := r.Store.Deployment(ctx, v.key)
	if err != nil {
		return object.FromStore(fmt.Errorf("reading the results of the tests: %w", err))
	}
	if total, failed := store.CountTests(whole.TestResults); total > 0 {
		v.Status.Tests = &v1alpha1.DeploymentTests{Total: int32(total), Failed: int32(failed)} //nolint:gosec // as many as fit into 1 MiB
	}
	return nil
}

// testArgs say with what tests are run. Two thirds of the time of a build are theirs: so
// what they found is reported before Kubernetes ends the build.
func testArgs(build plan.Build) []string {
	return []string{
		"--providers=" + configFolder + "/" + runnerconfig.ProvidersFile,
		"--variables=" + configFolder + "/" + runnerconfig.VariablesFile,
		"--prices=" + configFolder + "/" + runnerconfig.PricesFile,
		fmt.Sprintf("--test-timeout=%ds", build.TimeoutSeconds*2/3),
	}
}

// configVolume has the configuration of an environment's runners. A repository whose
// tests mock all models needs none.
func configVolume(environment string) corev1.Volume {
	volume := object.SecretVolume("config", object.RunnerConfig(environment))
	volume.Secret.Optional = ptr.To(true)
	return volume
}
