// SPDX-License-Identifier: Apache-2.0

package cron_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/cron"
)

// A number of a payload is stored unchanged or rejected.
func TestCheck_RefusesNumbersThatKubernetesChanges(t *testing.T) {
	t.Parallel()
	for number, kept := range map[string]bool{
		"1": true, "-0": true, "0.0": true, "0e99999999999999999999": true, "1.50": true, "1e2": true, "6.02E+23": true, "100000000000000000000": true,
		"9223372036854775807": true, "-9223372036854775808": true, "9007199254740993": true, "0.1": true, "-12.25e-3": true,
		"99999999999999999999": false, "9223372036854775809": false, "0.12345678901234567890123": false, "9007199254740993.5": false,
		"1e-400": false, "1e-99999999999999999999": false, "-1.00000000000000000001": false,
	} {
		t.Run(number, func(t *testing.T) {
			t.Parallel()
			wrong := cron.Check("0 9 * * *", "", "", json.RawMessage(`{"a":{"b":["1e-400",`+number+`]}}`))
			if kept {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Equal(t, cron.FieldPayload, wrong[0].Field)
			require.Contains(t, wrong[0].Problem, "has a number with too many digits")
		})
	}
}
