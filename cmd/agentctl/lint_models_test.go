// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Lint warns once of each provider without a key on this machine.
func TestWarnModels_WarnsOfMissingKeys(t *testing.T) {
	t.Parallel()
	dir := repository(t,
		"agents/a.yaml", "name: a\nmodel: openai/gpt-5\nfallback_model: my-own/large\n", "agents/b.yaml", "name: b\nmodel: openai/gpt-5-mini\n",
		"agents/c.yaml", "name: c\nmodel: scripted/c\n", "models/c.yaml", "steps: [{text: hi}]\n")
	project, problems, err := checkRepository(dir)
	require.NoError(t, err)
	require.Empty(t, problems)
	const (
		first  = "agents/a.yaml:2:1: this machine has no key for openai/gpt-5, so run, and tests without a mock, cannot ask the model; set OPENAI_API_KEY"
		second = "agents/a.yaml:3:1: this machine has no key for my-own/large, so run, and tests without a mock, cannot ask the model; set MY_OWN_BASE_URL and MY_OWN_API_KEY"
	)
	for name, c := range map[string]struct {
		known []string
		want  string
	}{
		"none":    {nil, first + "\n" + second},
		"key":     {[]string{"OPENAI_API_KEY"}, second},
		"address": {[]string{"MY_OWN_BASE_URL"}, first},
		"both":    {[]string{"OPENAI_BASE_URL", "MY_OWN_API_KEY"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			warnings := warnModels(project, func(name string) string {
				for _, known := range c.known {
					if known == name {
						return "x"
					}
				}
				return ""
			})
			if c.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.EqualError(t, warnings, c.want)
		})
	}
	require.Empty(t, warnModels(nil, func(string) string { return "" }))
}
