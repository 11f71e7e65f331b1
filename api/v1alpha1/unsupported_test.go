// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/unsupported"
)

// readers names the reader of each field of a spec: a file, and a text of the file. A field without a reader must not be in
// the API. Unsupported must return each value without an effect. The reader of a field with a Kubernetes type also reads the
// fields below it.
var readers = map[string]string{
	"Project.telemetry.otlp.endpoint":                         "controllers/project/telemetry.go: spec.Endpoint",
	"Project.telemetry.otlp.headersSecretRef.name":            "controllers/project/telemetry.go: spec.HeadersSecretRef.Name",
	"Project.telemetry.otlp.content":                          "controllers/project/telemetry.go: spec.Content",
	"Project.telemetry.otlp.samplePercent":                    "controllers/project/telemetry.go: spec.SamplePercent",
	"Project.telemetry.otlp.environments":                     "controllers/project/telemetry.go: spec.Environments",
	"Project.displayName":                                     "controllers/project/controller.go: project.Spec.DisplayName",
	"Project.git.url":                                         "controllers/deployment/source.go: git.URL",
	"Project.git.secretRef.name":                              "controllers/deployment/source.go: git.SecretRef.Name",
	"Project.git.defaultBranch":                               "controllers/deployment/source.go: Git.DefaultBranch",
	"Project.git.path":                                        "controllers/deployment/source.go: Spec.Git.Path",
	"Project.git.apiURL":                                      "controllers/commitstatus/report.go: git.APIURL",
	"Project.git.provider":                                    "controllers/commitstatus/report.go: git.Provider",
	"Project.defaultEnvironment":                              "controllers/base/identity.go: Spec.DefaultEnvironment",
	"Project.limits.environments":                             "internal/plan/plan.go: limits.Environments",
	"Project.limits.requestsPerMinute":                        "internal/plan/plan.go: limits.RequestsPerMinute",
	"Project.retention.runsSeconds":                           "controllers/project/controller.go: r.RunsSeconds",
	"Project.limits.backlogRuns":                              "internal/plan/plan.go: limits.BacklogRuns",
	"Project.limits.backlogInput":                             "internal/plan/plan.go: limits.BacklogInput",
	"Project.limits.storage":                                  "internal/plan/plan.go: limits.Storage",
	"Project.modelProviders[].prefix":                         "controllers/runnerpool/apply.go: p.Prefix",
	"Project.modelProviders[].type":                           "controllers/runnerpool/apply.go: p.Type",
	"Project.modelProviders[].baseURL":                        "controllers/runnerpool/apply.go: p.BaseURL",
	"Project.modelProviders[].apiKeySecretRef.name":           "controllers/runnerpool/apply.go: p.APIKeySecretRef",
	"Project.modelProviders[].apiKeySecretRef.key":            "controllers/runnerpool/apply.go: p.APIKeySecretRef",
	"Project.modelProviders[].prices[].model":                 "controllers/runnerpool/resources.go: price.Model",
	"Project.modelProviders[].prices[].currency":              "controllers/runnerpool/resources.go: price.Currency",
	"Project.modelProviders[].prices[].inputPerMillion":       "controllers/runnerpool/resources.go: price.InputPerMillion",
	"Project.modelProviders[].prices[].cachedInputPerMillion": "controllers/runnerpool/resources.go: price.CachedInputPerMillion",
	"Project.modelProviders[].prices[].outputPerMillion":      "controllers/runnerpool/resources.go: price.OutputPerMillion",
	"Project.modelProviders[].prices[].thinkingPerMillion":    "controllers/runnerpool/resources.go: price.ThinkingPerMillion",

	"Environment.id":                               "api/v1alpha1/environment_status.go: e.Spec.ID",
	"Environment.displayName":                      "api/v1alpha1/environment_status.go: e.Spec.DisplayName",
	"Environment.kind":                             "controllers/environment/claim.go: e.Spec.Kind",
	"Environment.testEnvironment":                  "controllers/deployment/tests.go: Spec.TestEnvironment",
	"Environment.git.branch":                       "controllers/deployment/source.go: environment.Spec.Git.Branch",
	"Environment.git.commit":                       "controllers/gitfollower/follower.go: git.Commit",
	"Environment.git.autoDeploy":                   "api/v1alpha1/environment_status.go: g.AutoDeploy",
	"Environment.git.intervalSeconds":              "api/v1alpha1/environment_status.go: g.IntervalSeconds",
	"Environment.runner.minReplicas":               "controllers/runnerpool/scaling.go: Runner.Replicas()",
	"Environment.runner.maxReplicas":               "controllers/runnerpool/scaling.go: p.MaxReplicas",
	"Environment.runner.concurrency":               "controllers/runnerpool/resources.go: runner.Concurrency",
	"Environment.runner.resources.requests":        "controllers/runnerpool/apply.go: Runner.Resources.Requirements()",
	"Environment.runner.resources.limits":          "controllers/runnerpool/apply.go: Runner.Resources.Requirements()",
	"Environment.runner.nodeSelector":              "controllers/base/plan.go: runner.NodeSelector",
	"Environment.runner.tolerations":               "controllers/base/plan.go: runner.Tolerations",
	"Environment.runner.affinity":                  "controllers/runnerpool/resources.go: runner.Affinity",
	"Environment.runner.runtimeClassName":          "controllers/base/plan.go: runner.RuntimeClassName",
	"Environment.runner.imagePullSecrets[].name":   "controllers/base/plan.go: runner.ImagePullSecrets",
	"Environment.runner.labels":                    "controllers/runnerpool/resources.go: runner.Labels",
	"Environment.runner.annotations":               "controllers/runnerpool/resources.go: runner.Annotations",
	"Environment.suspend":                          "controllers/deployment/build.go: environment.Spec.Suspend",
	"Environment.variables[].name":                 "controllers/base/variables.go: v.Name",
	"Environment.variables[].value":                "controllers/base/variables.go: v.Value",
	"Environment.variables[].secretKeyRef.name":    "controllers/base/variables.go: v.SecretKeyRef",
	"Environment.variables[].secretKeyRef.key":     "controllers/base/variables.go: v.SecretKeyRef",
	"Environment.variables[].sealedValue":          "controllers/base/variables.go: v.SealedValue",
	"Environment.variables[].sensitive":            "controllers/base/variables.go: v.IsSensitive()",
	"Environment.oauthApps[].name":                 "controllers/base/variables.go: app.Name",
	"Environment.oauthApps[].tokenURL":             "controllers/base/variables.go: app.TokenURL",
	"Environment.oauthApps[].clientID":             "controllers/base/variables.go: app.ClientID",
	"Environment.oauthApps[].clientSecretRef.name": "controllers/base/variables.go: app.ClientSecretRef",
	"Environment.oauthApps[].clientSecretRef.key":  "controllers/base/variables.go: app.ClientSecretRef",
	"Environment.oauthApps[].scopes":               "controllers/base/variables.go: app.Scopes",
	"Environment.oauthApps[].audience":             "controllers/base/variables.go: app.Audience",

	"Deployment.id":                     "api/v1alpha1/deployment_status.go: d.Spec.ID",
	"Deployment.environment":            "controllers/deployment/begin.go: v.Spec.Environment",
	"Deployment.source.bundle.digest":   "controllers/deployment/source.go: bundle.Digest",
	"Deployment.source.git.branch":      "controllers/deployment/source.go: git.Branch",
	"Deployment.source.git.commit":      "controllers/deployment/source.go: git.Commit",
	"Deployment.redeployOf":             "controllers/deployment/begin.go: v.Spec.RedeployOf",
	"Deployment.skipTests":              "controllers/deployment/begin.go: v.Spec.SkipTests",
	"Deployment.cancel":                 "controllers/deployment/build.go: v.Spec.Cancel",
	"Deployment.skipFailedConnectors":   "controllers/deployment/begin.go: v.Spec.SkipFailedConnectors",
	"Deployment.activation.force":       "controllers/deployment/activate.go: Activation.Force",
	"Deployment.activation.requestedAt": "controllers/deployment/activate.go: Activation.RequestedAt",

	"Connector.id":                       "api/v1alpha1/connector_status.go: c.Spec.ID",
	"Connector.environment":              "controllers/connector/controller.go: c.Spec.Environment",
	"Connector.displayName":              "api/v1alpha1/connector_status.go: c.Spec.DisplayName",
	"Connector.mode":                     "connector/crd/crd.go: c.Spec.Mode",
	"Connector.enabled":                  "controllers/projection/connector.go: c.IsEnabled()",
	"Connector.webhook.sealedHeaders":    "controllers/connector/outbound.go: c.Spec.Webhook.SealedHeaders",
	"Connector.headersSecretRef.name":    "controllers/connector/outbound.go: ref.Name",
	"Connector.secretVersion":            "controllers/connector/secrets.go: c.SecretVersion()",
	"Connector.secretGracePeriodSeconds": "controllers/projection/connector.go: c.SecretGracePeriod()",
	"Connector.secretRef.name":           "controllers/connector/secrets.go: c.Spec.SecretRef.Name",

	"Connector.webhook.sealedSecret": "controllers/connector/secrets.go: c.SealedSecret()",
	"ConnectorLink.id":               "api/v1alpha1/connectorlink_status.go: l.Spec.ID",
	"ConnectorLink.connector":        "controllers/connectorlink/controller.go: link.Spec.Connector",
	"ConnectorLink.agent":            "controllers/projection/link.go: link.Spec.Agent",
	"ConnectorLink.filesRequired":    "controllers/projection/link.go: link.Spec.FilesRequired",

	"ConnectorLink.outbound.mode":             "controllers/projection/link.go: spec.Mode",
	"ConnectorLink.outbound.actionName":       "controllers/projection/link.go: spec.ActionName",
	"ConnectorLink.outbound.sourceConnectors": "controllers/connectorlink/resolve.go: link.SourceConnectors()",
	"ConnectorLink.outbound.statuses":         "controllers/projection/link.go: spec.Statuses",

	"APIKey.id":                "api/v1alpha1/apikey_status.go: k.Spec.ID",
	"APIKey.displayName":       "api/v1alpha1/apikey_types.go: JSONPath=`.spec.displayName`",
	"APIKey.hash":              "apiserver/rest/key_index.go: k.Spec.Hash",
	"APIKey.keyID":             "apiserver/rest/key_index.go: key.Spec.KeyID",
	"APIKey.access":            "apiserver/rest/permissions.go: spec.Access",
	"APIKey.permissions":       "apiserver/rest/permissions.go: spec.Permissions",
	"APIKey.environmentAccess": "apiserver/rest/lookup.go: EnvironmentAccess",
	"APIKey.environments":      "apiserver/rest/permissions.go: Spec.Environments",
	"APIKey.owner.kind":        "apiserver/rest/audit.go: Spec.Owner.Kind",
	"APIKey.owner.name":        "apiserver/rest/audit.go: Spec.Owner.Name",
	"APIKey.owner.groups":      "apiserver/rest/permissions.go: owner.Groups",
	"APIKey.expiresAt":         "api/v1alpha1/apikey_owner.go: ExpiresAt",
	"APIKey.revoked":           "apiserver/rest/auth.go: k.Spec.Revoked",
}

func TestFields_HaveReaders(t *testing.T) {
	t.Parallel()
	fields := map[string]bool{}
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			rest, inSpec := strings.CutPrefix(path, ".spec.")
			whole := ofKubernetes(path) && !strings.HasSuffix(path, ".affinity") && !strings.HasSuffix(path, ".tolerations")
			if !inSpec || whole || len(node.Properties) > 0 && !ofKubernetes(path) || strings.HasSuffix(path, "]") || strings.HasSuffix(path, "}") {
				return
			}
			if node.Items != nil && len(node.Items.Schema.Properties) > 0 && !ofKubernetes(path) {
				return
			}
			fields[crd.Spec.Names.Kind+"."+rest] = true
		})
	}
	for field := range fields {
		reader, named := readers[field]
		require.True(t, named, "who reads %s? name it in readers, or take the field out of the API", field)
		file, text, _ := strings.Cut(reader, ": ")
		content, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err, field)
		require.Contains(t, string(content), text, "%s is not read by %s", field, file)
	}
	for field := range readers {
		t.Run(field, func(t *testing.T) {
			require.True(t, fields[field], "%s is no field of the CRDs", field)
		})
	}
}

// Each value of an enumeration is tried in an object of its kind.
func TestUnsupported_Values(t *testing.T) {
	t.Parallel()
	var refused []string
	for _, o := range append(all(), newCronConnector(), newOutboundLink()) {
		for _, crd := range crds(t) {
			if crd.Spec.Names.Kind != o.ObjectKind() {
				continue
			}
			require.Empty(t, o.Unsupported(), o.ObjectKind())
			walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
				rest, inSpec := strings.CutPrefix(path, ".spec.")
				if !inSpec || ofKubernetes(path) {
					return
				}
				if c, ok := o.(*v1alpha1.Connector); ok && (c.Spec.Webhook == nil) != strings.HasPrefix(rest, "cron.") {
					return // of the other type, or tried with it
				}
				if l, ok := o.(*v1alpha1.ConnectorLink); ok && (l.Spec.Outbound == nil) == strings.HasPrefix(rest, "outbound.") {
					return // tried with the other link
				}
				for _, value := range node.Enum {
					changed := with(t, o, strings.Split(rest, "."), value.Raw)
					for _, field := range changed.Unsupported() {
						require.True(t, strings.HasPrefix(field, "spec."), field)
						refused = append(refused, o.ObjectKind()+"."+rest+": "+strings.Trim(string(value.Raw), `"`))
					}
				}
			})
		}
	}
	var names []string
	for _, name := range unsupported.At(unsupported.Object) {
		names = append(names, name.String())
	}
	require.ElementsMatch(t, names, refused)
}

// with returns a copy of an object with another value of a field of the spec. In a list it changes the first item.
func with(t *testing.T, o v1alpha1.ConditionedObject, path []string, value json.RawMessage) v1alpha1.ConditionedObject {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	at := content["spec"].(map[string]any)
	for _, name := range path[:len(path)-1] {
		if list, isList := strings.CutSuffix(name, "[]"); isList {
			at = at[list].([]any)[0].(map[string]any)
			continue
		}
		at = at[name].(map[string]any)
	}
	var decoded any
	require.NoError(t, json.Unmarshal(value, &decoded))
	at[path[len(path)-1]] = decoded
	changed := o.DeepCopyObject().(v1alpha1.ConditionedObject)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, changed))
	return changed
}

func TestUnsupported_Stalls(t *testing.T) {
	t.Parallel()
	c := newConnector()
	c.Generation = 3
	v1alpha1.MarkNotSupported(c, []string{"spec.kind: Some"})
	require.Equal(t, "True NotSupported", condition(c, v1alpha1.ConditionStalled))
	require.Equal(t, "False NotSupported", condition(c, v1alpha1.ConditionReady))
	require.Contains(t, c.Status.Condition(v1alpha1.ConditionReady).Message, "spec.kind: Some")
	require.EqualValues(t, 3, c.Status.ObservedGeneration)
}
