// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckUserSecret_RejectsUnusableSecrets(t *testing.T) {
	t.Parallel()
	for secret, problem := range map[string]string{
		"a":                              "",
		"two words":                      "",
		"whsec_MDEyMzQ1Njc4OWFiY2RlZg==": "",
		"whsec_not-base64, but long":     "",
		"":                               "is empty",
		"CANARY\n":                       "white space",
		" CANARY":                        "white space",
		"whsec_":                         "fewer than 16 bytes",
		"whsec_Zm9v":                     "fewer than 16 bytes",
		strings.Repeat("C", MaxBrought):  "",
		strings.Repeat("CANARY", 1000):   "more than 4096",
	} {
		t.Run(fmt.Sprintf("%.60s", secret), func(t *testing.T) {
			got := CheckUserSecret(secret)
			if problem == "" {
				require.Empty(t, got, secret)
				return
			}
			require.Contains(t, got, problem, "%q", secret)
			require.NotContains(t, got, "CANARY")
		})
	}
}
