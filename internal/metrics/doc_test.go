// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMetricsStandWhereTheDocSays: whoever looks for one begins in this package.
func TestMetricsStandWhereTheDocSays(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	const root = "../.."
	name, elsewhere := regexp.MustCompile(`"agentplatform_[a-z_]+"`), 0
	for _, folder := range []string{"apiserver", "cmd", "controllers", "runner", "store", "webhookgw"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(at, ".go") || strings.HasSuffix(at, "_test.go") {
				return err
			}
			text, err := os.ReadFile(at)
			if err != nil || !name.Match(text) {
				return err
			}
			file, err := filepath.Rel(root, at)
			require.Contains(t, string(doc), file)
			elsewhere++
			return err
		}))
	}
	require.Positive(t, elsewhere, "what the doc says of other files is over")
}
