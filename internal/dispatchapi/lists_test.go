// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// This holds for each list of a request, regardless of its elements.
func TestLists_AreCountedBeforeDecoding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		into    any
		element string
		most    int
	}{
		"digests":    {new(Digests), `"a,\\\",b"`, MaxDigests},
		"held":       {new(HeldLeases), `{"token":1,"run_id":"00000000-0000-0000-0000-000000000000"}`, MaxLeases},
		"leases":     {new(Leases), `{"token":1,"run_id":"00000000-0000-0000-0000-000000000000"}`, MaxLeases},
		"entries":    {new(Entries), `{"data":[1,2,{"a":",]\\\\"}],"kind":"x"}`, MaxEntries},
		"agents":     {new(Agents), `{"config":{"a":[1,2]},"name":"a"}`, MaxAgents},
		"models":     {new(Models), `"openai/a,b"`, MaxAgentModels},
		"connectors": {new(Connectors), `{"key":"a","content":"type: cron, [x,y]"}`, MaxConnectors},
		"tests":      {new(Tests), `{"agent_name":"a","token_usage":{"input_tokens":1}}`, MaxTests},
		"costs":      {new(DayCosts), `{"day":20000,"calls":1}`, MaxDayCosts},
		"no agent":   {new(Agents), `null`, MaxAgents},
	} {
		t.Run(name, func(t *testing.T) {
			whole := strings.TrimSuffix(strings.Repeat(c.element+",", c.most), ",")
			require.NoError(t, json.Unmarshal([]byte("["+whole+"]"), c.into))
			err := json.Unmarshal([]byte("["+whole+","+c.element+"]"), c.into)
			require.ErrorIs(t, err, ErrTooMany)
		})
	}
	var none HeartbeatRequest
	require.NoError(t, json.Unmarshal([]byte(`{"leases":null}`), &none))
	require.NoError(t, json.Unmarshal([]byte(`{"leases":[]}`), &none))
}
