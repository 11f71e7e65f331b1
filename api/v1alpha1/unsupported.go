// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
)

// Unsupported: model services that speak a protocol which no runner speaks.
func (p *Project) Unsupported() []string {
	var out []string
	for i, provider := range p.Spec.ModelProviders {
		if provider.Type != ModelProviderOpenAI {
			out = append(out, fmt.Sprintf("spec.modelProviders[%d].type: %s", i, provider.Type))
		}
	}
	return out
}

// Unsupported: all of an Environment is supported.
func (e *Environment) Unsupported() []string { return nil }

// Unsupported: all of a Deployment is supported.
func (d *Deployment) Unsupported() []string { return nil }

// Unsupported: all of a Connector is supported.
func (c *Connector) Unsupported() []string { return nil }

// Unsupported: nothing runs middleware yet.
func (l *ConnectorLink) Unsupported() []string {
	if o := l.Spec.Outbound; o != nil && o.Mode == LinkMiddleware {
		return []string{"spec.outbound.mode: " + string(LinkMiddleware)}
	}
	return nil
}

// Unsupported: all of an APIKey is supported.
func (k *APIKey) Unsupported() []string { return nil }

// MarkNotSupported: the spec asks for what this release does not do. Nothing
// was done for this generation.
func MarkNotSupported(o ConditionedObject, fields []string) {
	MarkStalled(o, ReasonNotSupported,
		"this release does not support "+strings.Join(fields, ", ")+"; change it: nothing is done for this "+o.ObjectKind()+" until then")
}
