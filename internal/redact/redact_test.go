// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSON_MasksSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"nothing":        {nil, ""},
		"a nil pointer":  {(*struct{})(nil), ""},
		"plain":          {map[string]any{"name": "a", "n": 1, "ok": true, "none": nil}, `{"name":"a","n":1,"ok":true,"none":null}`},
		"large numbers":  {map[string]any{"n": int64(1) << 60}, `{"n":1152921504606846976}`},
		"secrets":        {map[string]any{"secret": "CANARY", "signing_secret": "CANARY", "clientSecret": "CANARY"}, `{"secret":"********","signing_secret":"********","clientSecret":"********"}`},
		"spellings":      {map[string]any{"API-Key": "CANARY", "api_key": "CANARY", "Private_Key": "CANARY", "bearerToken": "CANARY"}, `{"API-Key":"********","api_key":"********","Private_Key":"********","bearerToken":"********"}`},
		"no secret":      {map[string]any{"secret": nil, "password": ""}, `{"secret":null,"password":""}`},
		"counts":         {map[string]any{"token_usage": map[string]any{"input_tokens": 7}}, `{"token_usage":{"input_tokens":7}}`},
		"all below":      {map[string]any{"headers": map[string]any{"X-Any": "CANARY"}, "secrets": []any{"CANARY", map[string]any{"a": "CANARY"}}}, `{"headers":{"X-Any":"********"},"secrets":["********",{"a":"********"}]}`},
		"variables":      {[]any{map[string]any{"name": "A", "value": "CANARY"}}, `[{"name":"A","value":"********"}]`},
		"URLs":           {[]any{"https://a.example", "https://a.example/hook/CANARY", "https://u:CANARY@a.example", "https://a.example?k=CANARY", "x://%zzCANARY"}, `["https://a.example","https://a.example/********","https://a.example/********","https://a.example/********","********"]`},
		"too large":      {strings.Split(strings.Repeat("text,", 100), ","), `{"omitted_bytes":704}`},
		"a long text":    {strings.Repeat("é", maxText), `"` + strings.Repeat("é", maxText/2-2) + `…"`},
		"not marshalled": {make(chan int), ""},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 500
			if name == "a long text" {
				limit = 2000
			}
			got := string(JSON(c.value, limit))
			require.NotContains(t, got, "CANARY")
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.JSONEq(t, c.want, got)
		})
	}
}
