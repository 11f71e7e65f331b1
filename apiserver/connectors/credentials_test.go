// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

func TestCredentials_KeepMaskedAndEmptyValues(t *testing.T) {
	t.Parallel()
	stored := map[string][]byte{"Authorization": []byte("sealed one"), "X-Token": []byte("sealed two"), "X-Old": []byte("sealed three")}
	fresh, kept, err := keepCredentials("body.config.headers",
		map[string]string{"Authorization": rest.Masked, "X-Token": "", "X-New": "CANARY"}, stored)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-New": "CANARY"}, fresh)
	require.Equal(t, map[string][]byte{"Authorization": []byte("sealed one"), "X-Token": []byte("sealed two")}, kept)

	fresh, kept, err = keepCredentials("body.config.headers", map[string]string{"X-Token": "CANARY"}, stored)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-Token": "CANARY"}, fresh)
	require.Empty(t, kept, "a credential that the request omits is removed")

	_, _, err = keepCredentials("body.config.headers", map[string]string{"B": "", "A": rest.Masked, "C": "CANARY"}, stored)
	var p rest.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, httpserver.Fields{
		invalidAt("body.config.headers.A", "has no stored value to keep: send the value"), invalidAt("body.config.headers.B", "has no stored value to keep: send the value"),
	}, p.Errors)
	require.NotContains(t, err.Error(), "CANARY")
}

func invalidAt(location, message string) rest.FieldError {
	return rest.FieldError{Location: location, Message: message}
}
