// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

// fileBlock matches a code block whose first line names a file.
var fileBlock = regexp.MustCompile("(?ms)^```[a-z]+\n# ([a-z]+/[a-z.]+)\n(.*?)^```$")

// The files on the page about scripts are a repository that builds and whose tests pass.
func TestScriptsPage_FilesPassTheirTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scripts.md")
	require.NoError(t, err)
	files := bundle.Files{}
	for _, block := range fileBlock.FindAllSubmatch(page, -1) {
		files[string(block[1])] = block[2]
	}
	require.Len(t, files, 4)
	project, err := bundle.Parse(files)
	require.NoError(t, err)
	require.Empty(t, engine.New(engine.Config{Features: features.New(features.Config{})}).Check(project))
	results, err := suite.Run(t.Context(), suite.Options{Project: project, Models: &model.Registry{}})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.True(t, results[0].Passed, results[0].Explain())
}
