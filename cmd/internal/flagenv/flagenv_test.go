// SPDX-License-Identifier: Apache-2.0

package flagenv_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
)

// program has a command below a command, with flags of both.
func program(ran *map[string]string) *cobra.Command {
	root := &cobra.Command{Use: "program", Short: "A program", SilenceUsage: true, SilenceErrors: true}
	group := &cobra.Command{Use: "group"}
	group.PersistentFlags().String("of-group", "default", "")
	leaf := &cobra.Command{Use: "leaf", RunE: func(cmd *cobra.Command, _ []string) error {
		*ran = map[string]string{}
		for _, name := range []string{"of-group", "of-leaf", "count"} {
			(*ran)[name] = cmd.Flags().Lookup(name).Value.String()
		}
		return nil
	}}
	leaf.Flags().String("of-leaf", "default", "")
	leaf.Flags().Int("count", 1, "")
	group.AddCommand(leaf)
	root.AddCommand(group)
	flagenv.Bind(root)
	return root
}

func TestBind_ReadsTheEnvironment(t *testing.T) {
	t.Setenv("AGENTPLATFORM_OF_GROUP", "by variable")
	t.Setenv("AGENTPLATFORM_OF_LEAF", "by variable")
	var ran map[string]string
	root := program(&ran)
	require.Contains(t, root.Long, "AGENTPLATFORM_SOME_FLAG")
	root.SetArgs([]string{"group", "leaf", "--of-leaf="})
	require.NoError(t, root.Execute())
	require.Equal(t, map[string]string{"of-group": "by variable", "of-leaf": "", "count": "1"}, ran, "a given value counts, also if it is empty")

	t.Setenv("AGENTPLATFORM_COUNT", "many")
	root = program(&ran)
	root.SetArgs([]string{"group", "leaf"})
	require.ErrorContains(t, root.Execute(), "AGENTPLATFORM_COUNT")
}
