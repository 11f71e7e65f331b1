// SPDX-License-Identifier: Apache-2.0

package store

import "strings"

// ConnectorName is the name of a connector, with what decides whose it is.
type ConnectorName struct {
	Name                   string
	DefinedInCode, Retired bool
}

// ClashesWith says whether two connectors of an environment cannot both have their names. Names that differ in
// the case of letters are the same. A retired connector keeps its name from connectors that people create, because
// a deployment may bring it back. Another file of the code may have its name.
func (n ConnectorName) ClashesWith(other ConnectorName) bool {
	if !strings.EqualFold(n.Name, other.Name) {
		return false
	}
	return !n.Retired && !other.Retired || !n.DefinedInCode || !other.DefinedInCode
}
