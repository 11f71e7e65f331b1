// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecret_AnyPlace: another value at another place does not invalidate the right secret.
func TestSecret_AnyPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	for name, place := range map[string]struct {
		header, authorization, query string
		status                       int
	}{
		"right in header only":        {secret, "Bearer x", "x", http.StatusOK},
		"right as bearer only":        {"x", "Bearer " + secret, "x", http.StatusOK},
		"right in query only":         {"x", "Bearer x", secret, http.StatusOK},
		"right beside another scheme": {"", "Basic eDp5", secret, http.StatusOK},
		"right in all":                {secret, "Bearer " + secret, secret, http.StatusOK},
		"right by another scheme":     {"x", "Basic " + secret, "x", http.StatusUnauthorized},
		"wrong in all":                {"x", "Bearer x", "x", http.StatusUnauthorized},
		"empty in all":                {"", "Bearer ", "", http.StatusUnauthorized},
		"parts of it in each place":   {secret[:2], "Bearer " + secret[2:4], secret[4:], http.StatusUnauthorized},
		"the same wrong one in each":  {"wrong", "Bearer wrong", "wrong", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.post(b.gateway, c.ID.String()+"?secret="+place.query, "{}", func(r *http.Request) {
				r.Header.Set("X-Service-Secret", place.header)
				r.Header.Set("Authorization", place.authorization)
			})
			require.Equal(t, place.status, got.status, "%v", got.body)
		})
	}
}
