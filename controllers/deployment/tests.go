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
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

// testEnvironment returns the name of the environment whose configuration the tests use, or "" if tests
// are skipped. If the project has model providers or the environment has variables or OAuth apps, it waits for that
// configuration, because tests would fail without it.
func (r *Reconciler) testEnvironment(ctx context.Context, v *deploymentState) (string, error) {
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
	if len(v.project.Spec.ModelProviders) == 0 && len(of.Spec.Variables) == 0 && len(of.Spec.OAuthApps) == 0 {
		return string(name), nil
	}
	config := &metav1.PartialObjectMetadata{}
	config.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: base.RunnerConfig(string(name))}, config)
	if apierrors.IsNotFound(err) {
		return "", &base.WaitingError{Message: fmt.Sprintf(
			"the tests need the model providers and variables of Environment %q, whose runners do not have them yet; see its conditions, or set spec.skipTests", name)}
	}
	if err != nil {
		return "", fmt.Errorf("finding the configuration of the runners of Environment %q: %w", name, err)
	}
	if !metav1.IsControlledBy(config, of) {
		return "", &base.WaitingError{Message: fmt.Sprintf(
			"the tests need the model providers and variables of Environment %q in Secret %q, which the platform did not create; delete or rename the Secret, or set spec.skipTests", name, config.Name)}
	}
	return string(name), nil
}

// mirrorTests sets the test counts after the build has reported them. The store's response to a claim
// has no results, so it reads them until the condition has the outcome.
func (r *Reconciler) mirrorTests(ctx context.Context, v *deploymentState) error {
	condition := v.Status.Condition(v1alpha1.ConditionTestsPassed)
	if !v.outcome.Built && !v.outcome.Status.Terminal() || condition != nil && condition.Status != metav1.ConditionUnknown {
		return nil
	}
	whole, err := r.Store.Deployment(ctx, v.key)
	if err != nil {
		return base.FromStore(fmt.Errorf("reading the results of the tests: %w", err))
	}
	if total, failed := store.CountTests(whole.TestResults); total > 0 {
		v.Status.Tests = &v1alpha1.DeploymentTests{Total: int32(total), Failed: int32(failed)} //nolint:gosec // as many as fit into 1 MiB
	}
	return nil
}

// testArgs returns the arguments of the test phase. Tests get two thirds of the build's time, so that
// the build can report their results before Kubernetes ends it.
func testArgs(build plan.Build) []string {
	return []string{
		"--providers=" + configFolder + "/" + runnerconfig.ProvidersFile,
		variablesArg,
		"--prices=" + configFolder + "/" + runnerconfig.PricesFile,
		fmt.Sprintf("--test-timeout=%ds", build.TimeoutSeconds*2/3),
	}
}

// variablesArg is the argument with the file of variables. A build needs them to list the tools of MCP servers.
const variablesArg = "--variables=" + configFolder + "/" + runnerconfig.VariablesFile

// variablesVolume returns configVolume with the variables only. A build without tests calls no models, so it
// gets none of their keys.
func variablesVolume(environment string) corev1.Volume {
	volume := configVolume(environment)
	volume.Secret.Items = []corev1.KeyToPath{{Key: runnerconfig.VariablesFile, Path: runnerconfig.VariablesFile}}
	return volume
}

// configVolume returns a volume with the configuration of an environment's runners. It is optional,
// because a repository whose tests mock all models needs none.
func configVolume(environment string) corev1.Volume {
	volume := base.SecretVolume("config", base.RunnerConfig(environment))
	volume.Secret.Optional = ptr.To(true)
	return volume
}
