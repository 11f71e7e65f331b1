// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that says something else at each poll does not change the status of objects each time.
func TestHeads_KeepTextWhileCauseStays(t *testing.T) {
	t.Parallel()
	first := Head{Problem: "the server said: one", TreeProblem: "one", Cause: "the server said: ", Path: "a"}
	for name, tt := range map[string]struct {
		second, want Head
		changed      bool
	}{
		"other text":         {Head{Problem: "the server said: two", TreeProblem: "two", Cause: first.Cause, Path: "a"}, first, false},
		"other cause":        {Head{Problem: "not found", Cause: "not found", Path: "a"}, Head{Problem: "not found", Cause: "not found", Path: "a"}, true},
		"other folder":       {Head{TreeProblem: "two", Cause: first.Cause, Path: "b"}, Head{TreeProblem: "two", Cause: first.Cause, Path: "b"}, true},
		"no cause":           {Head{Commit: "c", Path: "a"}, Head{Commit: "c", Path: "a"}, true},
		"text, but no cause": {Head{Problem: "no branch", Path: "a"}, Head{Problem: "no branch", Path: "a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heads := NewHeads()
			require.True(t, heads.replaceHeads("team", map[string]Head{"main": first})["main"])
			require.Equal(t, tt.changed, heads.replaceHeads("team", map[string]Head{"main": tt.second})["main"])
			got, _ := heads.getHead("team", "main")
			require.Equal(t, tt.want, got)
		})
	}
}
