// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The keys of defaults and of a second model count too.
func TestAgent_Models(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, defaults, agent string
		want                  []ModelUse
	}{
		{"one", "", "model: openai/gpt-5\n", []ModelUse{{[]string{"model"}, "openai/gpt-5"}}},
		{
			"fallback", "", "model: openai/gpt-5\nfallback_model: our/a/b\n",
			[]ModelUse{{[]string{"model"}, "openai/gpt-5"}, {[]string{"fallback_model"}, "our/a/b"}},
		},
		{"defaults", "model: openai/gpt-5\n", "", []ModelUse{{[]string{"model"}, "openai/gpt-5"}}},
		{"none", "model: openai/gpt-5\n", "type: tool\ntool_name: current_time\n", nil},
		{"null", "fallback_model: openai/gpt-5\n", "model: our/a\nfallback_model: null\n", []ModelUse{{[]string{"model"}, "our/a"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			files := Files{"agents/a.yaml": []byte("name: a\n" + row.agent), "agents/b.yaml": []byte("name: b\nmodel: our/b\n")}
			if row.defaults != "" {
				files["agents/_defaults.yaml"] = []byte(row.defaults)
			}
			p, err := Parse(files)
			require.NoError(t, err)
			require.Equal(t, row.want, p.Agent("a").Models())
		})
	}
}

// A key that names a model is found at every depth, also if a later release adds it.
func TestFindModels_FollowsTags(t *testing.T) {
	t.Parallel()
	type judge struct {
		Name  string `yaml:"name"`
		Model string `yaml:"model" form:"model"`
	}
	type agent struct {
		Judges []*judge         `yaml:"judges"`
		Checks map[string]judge `yaml:"checks"`
		Models []string         `yaml:"models" form:"model"`
		Other  string           `yaml:"other" form:"url"`
	}
	got := findModels(reflect.ValueOf(&agent{
		Judges: []*judge{{Name: "a/b", Model: "p/1"}, {}, nil}, Checks: map[string]judge{"y": {Model: "p/3"}, "x": {Model: "p/2"}},
		Models: []string{"p/4", "p/5"}, Other: "p/6",
	}), nil)
	require.Equal(t, []ModelUse{
		{[]string{"judges", "model"}, "p/1"}, {[]string{"checks", "x", "model"}, "p/2"}, {[]string{"checks", "y", "model"}, "p/3"},
		{[]string{"models"}, "p/4"}, {[]string{"models"}, "p/5"},
	}, got)
}

// A key whose name ends with model has the form, so that no deployment overlooks its provider.
func TestKeys_ModelsHaveForm(t *testing.T) {
	t.Parallel()
	for _, f := range agentFields.ordered {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, strings.HasSuffix(f.name, "model"), f.form == modelForm)
		})
	}
}
