// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// TestCredentialsThatAreMaskedOrEmptyStay: and no other ones.
func TestCredentialsThatAreMaskedOrEmptyStay(t *testing.T) {
	t.Parallel()
	stored := map[string][]byte{"Authorization": []byte("sealed one"), "X-Token": []byte("sealed two"), "X-Old": []byte("sealed three")}
	fresh, kept, err := keepCredentials("body.config.headers",
		map[string]string{"Authorization": masked, "X-Token": "", "X-New": "CANARY"}, stored)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-New": "CANARY"}, fresh)
	require.Equal(t, map[string][]byte{"Authorization": []byte("sealed one"), "X-Token": []byte("sealed two")}, kept)

	fresh, kept, err = keepCredentials("body.config.headers", map[string]string{"X-Token": "CANARY"}, stored)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-Token": "CANARY"}, fresh)
	require.Empty(t, kept, "what is not sent goes")

	_, _, err = keepCredentials("body.config.headers", map[string]string{"B": "", "A": masked, "C": "CANARY"}, stored)
	var p Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, httpserver.Fields{
		at("body.config.headers.A", "has no stored value that it could keep"), at("body.config.headers.B", "has no stored value that it could keep"),
	}, p.Errors)
	require.NotContains(t, err.Error(), "CANARY")
}
