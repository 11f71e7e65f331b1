// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
	"github.com/agentplatform/agentplatform/runner/input"
)

// list is a JSON object with so many values in all.
func list(values int) string {
	return `{"name":"Ada","a":[0` + strings.Repeat(",0", values-4) + `]}`
}

// nested is a JSON object so deep.
func nested(depth int) string {
	return `{"name":"Ada","a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
}

// TestRunsWithTooComplexInputsFailAtOnce: with a code and words of their own,
// before anything of them is decoded.
func TestRunsWithTooComplexInputsFailAtOnce(t *testing.T) {
	t.Parallel()
	p := newPort(t, repo())
	r := started(t, p, "one", nil, nil)
	for input, want := range map[string]string{
		list(dispatchapi.MaxInputValues + 1):  fmt.Sprintf("it has %d JSON values, at most %d", dispatchapi.MaxInputValues+1, dispatchapi.MaxInputValues),
		nested(dispatchapi.MaxInputDepth + 1): fmt.Sprintf("nested %d deep, at most %d", dispatchapi.MaxInputDepth+1, dispatchapi.MaxInputDepth),
	} {
		t.Run(fmt.Sprintf("%.60s", input), func(t *testing.T) {
			run := p.queueElsewhere("hello", input)
			end := p.await(t, run)
			require.Equal(t, dispatchapi.StatusFailed, end.Status)
			require.Equal(t, dispatchapi.CodeInputTooComplex, end.ErrorCode)
			require.Contains(t, end.Error, want)
			require.Equal(t, 1, p.attempts(run))
		})
	}
	for _, input := range []string{list(dispatchapi.MaxInputValues), nested(dispatchapi.MaxInputDepth)} {
		end := p.await(t, p.queueElsewhere("hello", input))
		require.Equal(t, "Hello Ada!", end.Output, end.Error)
	}
	text := p.queue("hello", "text/plain", list(dispatchapi.MaxInputValues+1))
	require.Equal(t, dispatchapi.StatusCompleted, p.await(t, text).Status, "what is no JSON is not decoded")
	require.NoError(t, r.end(t))
}

// TestInputsTakeBoundedMemory: those within the bound some tens of MiB, others
// next to nothing.
func TestInputsTakeBoundedMemory(t *testing.T) { // not beside others, whose memory would count
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
