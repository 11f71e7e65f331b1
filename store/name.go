// SPDX-License-Identifier: Apache-2.0

package store

import "strings"

// ConnectorName is the name of a connector with the fields that decide conflicts.
type ConnectorName struct {
	Name                   string
	DefinedInCode, Retired bool
}

// ClashesWith reports whether two connectors of an environment have conflicting names. Names are
// compared without case. A retired connector keeps its name from connectors that users create,
// because a deployment may restore it. Another file in the code may take its name.
func (n ConnectorName) ClashesWith(other ConnectorName) bool {
	if !strings.EqualFold(n.Name, other.Name) {
		return false
	}
	return !n.Retired && !other.Retired || !n.DefinedInCode || !other.DefinedInCode
}
