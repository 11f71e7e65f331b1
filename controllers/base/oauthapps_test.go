// SPDX-License-Identifier: Apache-2.0

package base

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// An OAuth app of an earlier release can have a token URL that no client can parse. Its condition names the field and the remedy.
func TestOAuthApps_NameInvalidTokenURL(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{
		"port": "https://login.example.com:port/token", "escape": "https://login.example.com/%zz",
		"address": "https://[::1/token", "host": "https://:443/token",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &v1alpha1.Environment{}
			e.Spec.OAuthApps = []v1alpha1.OAuthApp{{Name: "crm", TokenURL: target}}
			_, err := (&Base{}).oauthApps(t.Context(), e, nil)
			var stalled *StalledError
			require.ErrorAs(t, err, &stalled)
			require.Equal(t, &StalledError{
				Reason: v1alpha1.ReasonInvalidSpec,
				Message: `spec.oauthApps: "crm" has a tokenURL that is not a valid URL; correct its host, its port or its % escapes; ` +
					"earlier valid values, if any, stay in effect",
			}, stalled)
		})
	}
}
