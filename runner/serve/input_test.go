// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
	"github.com/agentplatform/agentplatform/runner/input"
)

// list returns a JSON object with this number of values.
func list(values int) string {
	return `{"name":"Ada","a":[0` + strings.Repeat(",0", values-4) + `]}`
}

// nested returns a JSON object with this depth.
func nested(depth int) string {
	return `{"name":"Ada","a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
}

// The run fails with its own code and message before the input is decoded.
func TestInput_RejectsComplexInput(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	r := started(t, p, "one", nil, nil)
	for input, want := range map[string]string{
		list(dispatchapi.MaxInputValues + 1):  fmt.Sprintf("it has %d JSON values, the limit is %d", dispatchapi.MaxInputValues+1, dispatchapi.MaxInputValues),
		nested(dispatchapi.MaxInputDepth + 1): fmt.Sprintf("nested %d deep, the limit is %d", dispatchapi.MaxInputDepth+1, dispatchapi.MaxInputDepth),
	} {
		t.Run(fmt.Sprintf("%.60s", input), func(t *testing.T) {
			run := p.queueElsewhere("hello", input)
			end := p.await(t, run)
			require.Equal(t, dispatchapi.StatusFailed, end.Status)
			require.Equal(t, runerror.InputTooComplex, end.ErrorCode)
			require.Contains(t, end.Error, want)
			require.Equal(t, 1, p.attempts(run))
		})
	}
	for _, input := range []string{list(dispatchapi.MaxInputValues), nested(dispatchapi.MaxInputDepth)} {
		end := p.await(t, p.queueElsewhere("hello", input))
		require.Equal(t, "Hello Ada!", end.Output, end.Error)
	}
	text := p.queue("hello", "text/plain", list(dispatchapi.MaxInputValues+1))
	require.Equal(t, dispatchapi.StatusCompleted, p.await(t, text).Status, "an input that is not JSON is not decoded")
	require.NoError(t, r.end(t))
}

// Inputs within the limit need some tens of MiB, others almost nothing.
func TestInput_LimitsMemory(t *testing.T) { // not parallel, because the memory of other tests would count
	for element, each := range map[string]int{`0`: 1, `{}`: 1, `[]`: 1, `[0]`: 2, `{"":0}`: 2, `"x"`: 1} {
		t.Run(element, func(t *testing.T) {
			for _, elements := range []int{(dispatchapi.MaxInputValues - 2) / each, 16 << 20 / (len(element) + 1)} {
				raw := []byte(`{"a":[` + strings.TrimSuffix(strings.Repeat(element+",", elements), ",") + `]}`)
				most := uint64(48 << 20)
				if elements*each+2 > dispatchapi.MaxInputValues {
					most = 64 << 10
				}
				memtest.AtMost(t, most, func() {
					_, _, err := input.Read("application/json", raw, false, dispatchapi.Files{})
					if elements*each+2 > dispatchapi.MaxInputValues {
						require.ErrorContains(t, err, "JSON values")
					} else {
						require.NoError(t, err)
					}
				}, element)
			}
		})
	}
}
