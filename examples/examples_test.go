// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/examples"
)

// TestEveryExampleIsAValidRepository: and says in its README what it is.
func TestEveryExampleIsAValidRepository(t *testing.T) {
	t.Parallel()
	require.Contains(t, examples.Names(), "hello")
	for _, name := range examples.Names() {
		files, err := examples.Open(name)
		require.NoError(t, err)
		project, err := bundle.Load(files)
		require.NoError(t, err, name)
		require.NotEmpty(t, project.Agents, name)
		readme, err := fs.ReadFile(files, "README.md")
		require.NoError(t, err, name)
		require.NotEmpty(t, readme, name)
	}
	_, err := examples.Open("nothing")
	require.ErrorContains(t, err, `there is no example "nothing"; there is hello`)
}
