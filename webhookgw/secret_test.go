// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASecretCountsInAnyOfItsPlaces: what a sender or a proxy puts into another of
// them for reasons of its own takes nothing from the right one.
func TestASecretCountsInAnyOfItsPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	for name, place := range map[string]struct {
		header, authorization, query string
		status                       int
	}{
		"right in the header alone":      {secret, "Bearer x", "x", http.StatusOK},
		"right as bearer alone":          {"x", "Bearer " + secret, "x", http.StatusOK},
		"right in the query alone":       {"x", "Bearer x", secret, http.StatusOK},
		"right beside another scheme":    {"", "Basic eDp5", secret, http.StatusOK},
		"right in all":                   {secret, "Bearer " + secret, secret, http.StatusOK},
		"right by another scheme":        {"x", "Basic " + secret, "x", http.StatusUnauthorized},
		"wrong in all":                   {"x", "Bearer x", "x", http.StatusUnauthorized},
		"empty in all":                   {"", "Bearer ", "", http.StatusUnauthorized},
		"a part of it in each, in a row": {secret[:2], "Bearer " + secret[2:4], secret[4:], http.StatusUnauthorized},
		"the same wrong one in each":     {"wrong", "Bearer wrong", "wrong", http.StatusUnauthorized},
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
