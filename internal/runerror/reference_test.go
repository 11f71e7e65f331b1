// SPDX-License-Identifier: Apache-2.0

package runerror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/run-errors.md lists all codes, as the table describes them.
func TestReference_ListsAllRunErrors(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString("# Error codes of runs\n\nThe field `error_code` of runs in the REST API and of results of sync webhooks is the reason that a run did not complete. " +
		"`error` explains it for people. Codes are stable. Texts can change, and later releases can add codes.\n\n" +
		"Retry says whether the same event may complete if you send or replay it again.\n")
	for _, group := range runerror.Table {
		fmt.Fprintf(&page, "\n## %s\n\n| Code | Meaning | Retry | Remedy |\n|---|---|---|---|\n", group.Title)
		for _, entry := range group.Entries {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", entry.Code, entry.Meaning, entry.Retry, entry.Remedy)
		}
	}
	refpage.Check(t, "run-errors.md", page.String())
}
