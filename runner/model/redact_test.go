// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestError_RedactsKeys(t *testing.T) {
	t.Parallel()
	const key = "sk-proj-Zm9vYmFyYmF6cXV4"
	for message, want := range map[string]string{
		"no such model":                                    "no such model",
		"key sk-proj-Zm9vYmFyYmF6cXV4 is bad":              "key ******** is bad",
		`key "sk-proj-Zm9vYmFyYmF6cXV4".`:                  `key "********".`,
		"Incorrect API key provided: sk-pr**********cXV4.": "Incorrect API key provided: ********",
		"key ending in YmF6cXV4 is revoked":                "key ending in ******** is revoked",
		"begins with sk-proj...":                           "begins with ********",
		"see https://x.example/?k=Zm9vYmFyYmF6":            "see https:********",
	} {
		t.Run(message, func(t *testing.T) {
			require.Equal(t, want, redactMessage(message, key))
		})
	}
	require.Equal(t, "key ******** is bad", redactMessage("key abc is bad", "abc"))
	require.Equal(t, "all is well", redactMessage("all is well", ""))
}
