// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
)

// Unsupported returns the model providers with an unsupported protocol.
func (p *Project) Unsupported() []string {
	var out []string
	for i, provider := range p.Spec.ModelProviders {
		if provider.Type != ModelProviderOpenAI {
			out = append(out, fmt.Sprintf("spec.modelProviders[%d].type: %s", i, provider.Type))
		}
	}
	return out
}

// Unsupported returns nil, because all of an Environment is supported.
func (e *Environment) Unsupported() []string { return nil }

// Unsupported returns nil, because all of a Deployment is supported.
func (d *Deployment) Unsupported() []string { return nil }

// Unsupported returns nil, because all of a Connector is supported.
func (c *Connector) Unsupported() []string { return nil }

// Unsupported returns nil, because all of a ConnectorLink is supported.
func (l *ConnectorLink) Unsupported() []string { return nil }

// Unsupported returns nil, because all of an APIKey is supported.
func (k *APIKey) Unsupported() []string { return nil }

// MarkNotSupported reports unsupported fields in the spec. This generation has no effect.
func MarkNotSupported(o ConditionedObject, fields []string) {
	MarkStalled(o, ReasonNotSupported,
		"this release does not support "+strings.Join(fields, ", ")+"; change the spec: the platform does not reconcile this "+o.ObjectKind()+" until then")
}
