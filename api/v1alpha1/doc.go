// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API group agentplatform.dev: what a person, a GitOps
// tool or the REST facade writes to configure projects, environments,
// deployments, connectors, links and API keys.
//
// One namespace is one project. Every reference is by name within it. The spec
// belongs to the object's writer, no controller changes it; the status belongs
// to the controllers, who write it through the MarkX methods of this package.
//
// The package grows by addition only: what an API server accepts today it
// accepts tomorrow.
//
// +kubebuilder:object:generate=true
// +groupName=agentplatform.dev
package v1alpha1
