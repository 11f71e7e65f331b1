// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/input"
)

// Facts replace fields of the input with their names. A run without a connector has no connector ID.
func TestFacts_AddTo(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"x-shop": "berlin"}
	for _, row := range []struct {
		name  string
		facts input.Facts
		want  any
	}{
		{"of a connector", input.Facts{RunID: "r", AgentName: "a", ConnectorID: "c", Headers: headers}, "c"},
		{"without connector", input.Facts{RunID: "r", AgentName: "a", Headers: headers}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, values, err := input.Read("application/json", []byte(`{"run_id":1,"connector_id":"made up","headers":1,"mine":2}`), false, dispatchapi.Files{})
			require.NoError(t, err)
			row.facts.AddTo(values)
			require.Equal(t, "r", values["run_id"])
			require.Equal(t, "a", values["agent_name"])
			require.Equal(t, row.want, values["connector_id"])
			require.Equal(t, map[string]any{"x-shop": "berlin"}, values["headers"])
			require.Contains(t, values, "mine")
		})
	}
}
