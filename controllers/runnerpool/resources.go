// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/pricing"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

const (
	component = "runner"
	// annotationConfig replaces the pods when model providers or variables change.
	annotationConfig = "agentplatform.dev/config"
	configFolder     = "/etc/agentplatform/config"
	portHealth       = "health"
	// healthPort and metricsPort are the same for all processes of the platform.
	healthPort, metricsPort = 8083, 8084
	tokenFolder             = "/etc/agentplatform/token" //nolint:gosec // a folder
	// concurrencyFlag is the only flag of a runner that depends on its environment.
	concurrencyFlag = "concurrency"
	// drainSeconds is the time that runs have after SIGTERM. The grace period of the pod is longer.
	drainSeconds, terminationSeconds = 30, 45
)

func tokenName(e *v1alpha1.Environment) string  { return base.ChildName(e.Name, "runner-token") }
func configName(e *v1alpha1.Environment) string { return base.RunnerConfig(e.Name) }
func poolName(e *v1alpha1.Environment) string   { return base.ChildName(e.Name, "runner") }

// matchLabels returns the selector of the pool's pods, which is immutable.
func matchLabels(e *v1alpha1.Environment) map[string]string {
	return map[string]string{base.LabelComponent: component, v1alpha1.LabelEnvironment: e.Name}
}

func selector(e *v1alpha1.Environment) string { return labels.Set(matchLabels(e)).String() }

// poolLabels returns the labels of the pool and its pods.
func poolLabels(e *v1alpha1.Environment) map[string]string {
	out := base.Labels(component, e.Name)
	maps.Copy(out, matchLabels(e))
	return out
}

// configSecret returns the Secret with the model providers and the variables.
func configSecret(e *v1alpha1.Environment, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: configName(e), Namespace: e.Namespace, Labels: poolLabels(e)},
		Data:       data,
	}
}

// poolOptions are the inputs of a pool besides its Environment.
type poolOptions struct {
	base.PodOptions
	ProjectID, ConfigDigest string
	// Resources are the resources of the runner container, with defaults.
	Resources corev1.ResourceRequirements
}

// newPool returns the Deployment of the environment's runner pods.
func newPool(e *v1alpha1.Environment, opts poolOptions) *appsv1.Deployment {
	replicas := e.Spec.Runner.Replicas()
	surge, none := intstr.FromInt32(1), intstr.FromInt32(0)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: poolName(e), Namespace: e.Namespace, Labels: poolLabels(e)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: matchLabels(e)},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &none},
			},
			Template: podTemplate(e, opts),
		},
	}
}

// configDigest returns a digest of the configuration Secret without prices. Users who can read pods can
// see it. A price change does not replace pods, because runners read prices again. The digest is keyed
// with the pool's token, so that weak values cannot be guessed from it.
func configDigest(token string, config map[string][]byte) string {
	digest := hmac.New(sha256.New, []byte(token))
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if name == runnerconfig.PricesFile {
			continue
		}
		fmt.Fprintf(digest, "%s %d\n%s", name, len(config[name]), config[name])
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
}

func podTemplate(e *v1alpha1.Environment, opts poolOptions) corev1.PodTemplateSpec {
	runner := e.Spec.Runner
	podLabels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(podLabels, runner.Labels)
	maps.Copy(podLabels, poolLabels(e))
	podLabels[v1alpha1.LabelProject] = opts.ProjectID
	maps.Copy(annotations, runner.Annotations)
	annotations[annotationConfig] = opts.ConfigDigest
	grace := int64(terminationSeconds)
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers:                    []corev1.Container{container(runner, opts)},
		Volumes: []corev1.Volume{
			base.SecretVolume("token", tokenName(e)), base.SecretVolume("config", configName(e)),
		},
	}
	opts.ConnectDispatch(&spec, &spec.Containers[0])
	base.SetScheduling(&spec, runner)
	spec.Affinity = runner.Affinity
	base.SetSecurity(&spec)
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels, Annotations: annotations}, Spec: spec}
}

func container(runner v1alpha1.RunnerPool, opts poolOptions) corev1.Container {
	args := append([]string{
		"serve",
		"--token-file=" + tokenFolder + "/" + base.TokenKey,
		"--providers=" + configFolder + "/" + runnerconfig.ProvidersFile,
		"--variables=" + configFolder + "/" + runnerconfig.VariablesFile,
		"--concurrency=" + strconv.Itoa(int(max(runner.Concurrency, 1))),
		"--prices=" + configFolder + "/" + runnerconfig.PricesFile,
		"--grace=" + strconv.Itoa(drainSeconds) + "s",
		"--health-addr=:" + strconv.Itoa(healthPort), "--metrics-addr=:" + strconv.Itoa(metricsPort),
	}, opts.Egress.Args()...)
	return corev1.Container{
		Name: component, Image: opts.Image, Command: []string{"/usr/local/bin/runner"}, Args: args,
		Resources: opts.Resources,
		// The memory limit for the garbage collector. It is not a flag.
		Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"},
		}}},
		Ports: []corev1.ContainerPort{
			{Name: portHealth, ContainerPort: healthPort}, {Name: base.PortMetrics, ContainerPort: metricsPort},
		},
		// A runner is ready if dispatch accepted it and it takes runs.
		ReadinessProbe: newProbe("/readyz", 2, 3), LivenessProbe: newProbe("/healthz", 10, 6),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "token", MountPath: tokenFolder, ReadOnly: true},
			{Name: "config", MountPath: configFolder, ReadOnly: true},
		},
	}
}

// newProbe returns a probe with a period in seconds and a number of tolerated consecutive failures.
func newProbe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(portHealth)}},
		PeriodSeconds: period, TimeoutSeconds: 5, FailureThreshold: failures,
	}
}

// pricesOf returns the prices of the models of a project's providers, and the platform's prices of
// other models.
func pricesOf(providers []v1alpha1.ModelProvider) (runnerconfig.Prices, error) {
	table, err := pricing.Known()
	if err != nil {
		return runnerconfig.Prices{}, err
	}
	out := runnerconfig.Prices{Prices: map[string]runnerconfig.Price{}}
	add := func(prefix, model string, currency v1alpha1.Currency, written pricing.Written) error {
		p, err := written.Price()
		out.Prices[prefix+"/"+model] = runnerconfig.Price{
			Currency: string(currency), Input: p.Input, CachedInput: p.CachedInput, Output: p.Output, Thinking: p.Thinking,
		}
		return err
	}
	for _, p := range providers {
		for model, written := range table.Of(cmp.Or(p.BaseURL, runnerconfig.OpenAIAddress)) {
			if err := add(p.Prefix, model, v1alpha1.CurrencyUSD, written); err != nil {
				return runnerconfig.Prices{}, fmt.Errorf("reading the platform's price table: %w", err)
			}
		}
		for _, price := range p.Prices {
			if err := add(p.Prefix, price.Model, cmp.Or(price.Currency, v1alpha1.CurrencyUSD), pricing.Written{
				Input: string(price.InputPerMillion), CachedInput: string(price.CachedInputPerMillion),
				Output: string(price.OutputPerMillion), Thinking: string(price.ThinkingPerMillion),
			}); err != nil {
				return runnerconfig.Prices{}, fmt.Errorf("reading the price of model %q of the provider %q: %w", price.Model, p.Prefix, err)
			}
		}
	}
	return out, nil
}
