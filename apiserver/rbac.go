// SPDX-License-Identifier: Apache-2.0

package apiserver

// What the facade does at the Kubernetes API, and nothing beyond: hack/generate.sh
// writes config/rbac/apiserver/role.yaml from it. All of it is namespaced, so that
// RoleBindings can limit a facade to some namespaces.
//
// Keys, their projects and their owners:
//
// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=localsubjectaccessreviews,verbs=create
//
// What routes read and write:
//
// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=get;list;create;patch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments/status,verbs=patch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks,verbs=get;list;create;patch;delete
//
// The uid that names the cluster:
//
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=namespaces,verbs=get,resourceNames=kube-system
//
// It has no verb on Secrets: the platform's keys are mounted.
