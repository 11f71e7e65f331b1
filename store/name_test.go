// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// Names are unique in an environment, without case. Retired connectors keep their names from
// connectors that users create.
func TestConnectorName_ClashesWith(t *testing.T) {
	t.Parallel()
	own, code := store.ConnectorName{Name: "orders"}, store.ConnectorName{Name: "Orders", DefinedInCode: true}
	retired := store.ConnectorName{Name: "ORDERS", DefinedInCode: true, Retired: true}
	for name, c := range map[string]struct {
		a, b store.ConnectorName
		want bool
	}{
		"same":             {own, own, true},
		"another case":     {own, store.ConnectorName{Name: "oRDERS"}, true},
		"beyond ASCII":     {store.ConnectorName{Name: "Bestände"}, store.ConnectorName{Name: "BESTÄNDE"}, true},
		"another name":     {own, store.ConnectorName{Name: "orders2"}, false},
		"user and code":    {own, code, true},
		"two files":        {code, code, true},
		"user and retired": {own, retired, true},
		"code and retired": {code, retired, false},
		"two retired":      {retired, retired, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.a.ClashesWith(c.b))
			require.Equal(t, c.want, c.b.ClashesWith(c.a))
		})
	}
}
