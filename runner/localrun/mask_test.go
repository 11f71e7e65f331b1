// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"encoding/base64"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// A mask hides a secret inside a longer text in base64, and leaves the values of the run as they are.
func TestMask_HidesEncodedSecrets(t *testing.T) {
	t.Parallel()
	m := &mask{}
	m.addSecret("CANARY-sk-4711-abcdef")
	basic := base64.StdEncoding.EncodeToString([]byte("user:CANARY-sk-4711-abcdef"))
	value := map[string]any{"list": []any{map[string]any{"auth": "Basic " + basic}}}
	clean := m.redactObject(value)
	require.NotContains(t, clean["list"].([]any)[0].(map[string]any)["auth"], basic[len(basic)-20:])
	require.Equal(t, map[string]any{"list": []any{map[string]any{"auth": "Basic " + basic}}}, value)
	require.True(t, m.hasSecret("a CANARY-sk-4711-abcdef"))
	require.Nil(t, m.redactObject(nil))
}

// The target of a mock has no value of a variable and no secret, and the host only if the repository names it.
func TestRecordedTarget_LeavesVariablesOut(t *testing.T) {
	t.Parallel()
	o := newObserver(Options{Secrets: []string{"s3cret"}, Now: time.Now, Variables: runnerconfig.Sorted([]runnerconfig.Variable{
		{Name: "SHOP_URL", Value: "https://shop.example/v1/"}, {Name: "HOST", Value: "crm.example"}, {Name: "TENANT", Value: "acme"},
		{Name: "HOOK", Value: "https://chat.example/hooks/s3cret"}, {Name: "PIN", Value: "12345678", Sensitive: true},
	})})
	for address, want := range map[string]string{
		"https://shop.example/v1/orders/4711":         "/orders/4711",
		"https://shop.example/v1":                     "/",
		"https://shop.example/v10/a":                  "https://shop.example/v10/a",
		"https://crm.example/a":                       "/a",
		"https://api.example/repos/x?page=2":          "https://api.example/repos/x?page=2",
		"https://api.example/acme/x":                  "/x",
		"https://api.example/a/bot-s3cret/send":       "/send",
		"https://api.example/a/s3cret":                "/",
		"https://chat.example/hooks/s3cret":           "/",
		"https://shop.example/v1/orders?key=12345678": "/orders",
		"https://shop.example/v1/orders?team=acme":    "/orders",
		"https://shop.example/v1/orders?team=b%20c":   "/orders?team=b%20c",
	} {
		t.Run(address, func(t *testing.T) {
			u, err := url.Parse(address)
			require.NoError(t, err)
			require.Equal(t, want, o.recordedTarget(u))
		})
	}
}
