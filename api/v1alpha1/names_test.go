// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func TestSlug_OfNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Production":                        "production",
		"  EU  West / 1 ":                   "eu-west-1",
		"Köln":                              "koln",
		"Straße & Łódź":                     "strasse-lodz",
		"Ærø":                               "aero",
		"a_b.c":                             "a-b-c",
		"--":                                "",
		"日本":                                "",
		"日本 2":                              "2",
		"":                                  "",
		strings.Repeat("a", 63):             strings.Repeat("a", 40),
		strings.Repeat("ab ", 9):            "ab-ab-ab-ab-ab-ab-ab-ab-ab",
		strings.Repeat("a", 39) + " " + "b": strings.Repeat("a", 39),
		strings.Repeat("a", 38) + " " + "b": strings.Repeat("a", 38) + "-b",
	} {
		t.Run(fmt.Sprintf("%.60s", name), func(t *testing.T) {
			require.Equal(t, want, v1alpha1.Slug(name), "%q", name)
		})
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

func TestSlug_IsDNSLabelOrEmpty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slug := v1alpha1.Slug(rapid.String().Draw(t, "name"))
		require.True(t, slug == "" || dnsLabel.MatchString(slug), "%q", slug)
		require.Equal(t, slug, v1alpha1.Slug(slug), "a slug is its own slug")
	})
}

func TestNameFor_FitsKubernetes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "eu-west-x7k2p", v1alpha1.NameFor("EU West", "environment", "x7k2p"))
	require.Equal(t, "environment-x7k2p", v1alpha1.NameFor("日本", "environment", "x7k2p"))
	require.Equal(t, strings.Repeat("a", 34)+"-x7k2p", v1alpha1.NameFor(strings.Repeat("a", 63), "environment", "x7k2p"))
	require.Equal(t, strings.Repeat("a", 33)+"-x7k2p", v1alpha1.NameFor(strings.Repeat("a", 33)+" b", "environment", "x7k2p"))
}
