// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is agentplatform.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "agentplatform.dev", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Project{}, &ProjectList{},
		&Environment{}, &EnvironmentList{},
		&Deployment{}, &DeploymentList{},
		&Connector{}, &ConnectorList{},
		&ConnectorLink{}, &ConnectorLinkList{},
		&APIKey{}, &APIKeyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme registers all kinds of the group.
var AddToScheme = schemeBuilder.AddToScheme
