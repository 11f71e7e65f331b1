// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API group agentplatform.dev. Users, GitOps tools and the REST facade
// write its objects to configure projects, environments, deployments, connectors, links and API
// keys.
//
// One namespace is one project, and every reference is a name in the same namespace. Only the
// author of an object changes its spec. Only controllers change its status, through the MarkX
// methods of this package.
//
// The package only grows: an API server accepts tomorrow what it accepts today.
//
// +kubebuilder:object:generate=true
// +groupName=agentplatform.dev
package v1alpha1
