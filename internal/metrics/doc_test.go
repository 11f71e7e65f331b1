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

// All metrics are declared in this package, so that the generated page is complete.
func TestMetrics_AreDeclaredHere(t *testing.T) {
	t.Parallel()
	const root = "../.."
	name := regexp.MustCompile(`"agentplatform_[a-z_]+"`)
	for _, folder := range []string{"apiserver", "cmd", "controllers", "runner", "store", "webhookgw"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			require.NotRegexp(t, name, string(text), path)
			return err
		}))
	}
}
