// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
)

// distinctFields returns a JSON object with n fields that no call has.
func distinctFields(n int) string {
	var fields []string
	for i := range n {
		fields = append(fields, fmt.Sprintf(`"x%d":0`, i))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// The cost of an invalid body depends on its bytes, not on its number of errors.
func TestBody_BoundsCostOfErrors(t *testing.T) { // not parallel, because the memory of other tests would count
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	variables := "/environments/" + w.EnvironmentID("staging") + "/variables"
	for name, c := range map[string]struct{ method, path, body string }{
		"list of empty objects": {http.MethodPut, variables, "[" + strings.Repeat("{},", 330_000) + "{}]"},
		"list of lists":         {http.MethodPut, variables, "[" + strings.Repeat("[],", 330_000) + "[]]"},
		"list of unknown names": {http.MethodPut, variables, "[" + distinctFields(80_000) + "]"},
		"unknown names":         {http.MethodPost, "/environments", distinctFields(80_000)},
		"list in a field":       {http.MethodPost, "/environments", `{"name":[` + strings.Repeat("{},", 330_000) + `{}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := w.Request(t, key, c.method, c.path, c.body)
			runtime.ReadMemStats(&after)
			require.Equal(t, http.StatusUnprocessableEntity, got.Code)
			require.Less(t, got.Body.Len(), 8<<10)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(24*len(c.body)))
		})
	}
}
