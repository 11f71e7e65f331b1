// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestWebhook_MethodsAndForms: other requests than the POST of JSON in the previous test.
func TestWebhook_MethodsAndForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inbound := b.connector("inbound", nil, "hello").ID.String()
	outbound := b.connector("outbound", nil).ID.String()
	method := func(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }
	media := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", name) }
	}
	for name, c := range map[string]struct {
		id, body string
		edit     func(*http.Request)
		status   int
		code     any
	}{
		"another method":              {inbound, "", method("PUT"), 405, "method_not_allowed"},
		"method before secret":        {outbound, "", method("DELETE"), 405, "method_not_allowed"},
		"ID before method":            {uuid.NewString(), "", method("PUT"), 404, "webhook_not_found"},
		"a GET, whatever its body":    {inbound + "?a=1", "{", method("GET"), 200, nil},
		"a GET with a broken query":   {inbound + "?a=%zz", "", method("GET"), 400, "invalid_form"},
		"a form":                      {inbound, "a=1&b=2", media("application/x-www-form-urlencoded; charset=UTF-8"), 200, nil},
		"JSON as a form":              {inbound, `{"a":1}`, media("application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		"JSON with = and & as a form": {inbound, `{"a":"b=c&d%", "e":[1]}`, media("application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		"a JSON list as a form":       {inbound, " [1,2]\n", media("application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		"broken JSON as a form":       {inbound, `{"a":1`, media("application/x-www-form-urlencoded"), 200, nil},
		"a JSON text as a form":       {inbound, `"a"`, media("application/x-www-form-urlencoded"), 200, nil},
		"JSON in a query":             {inbound + `?{"a":1}`, "", method("GET"), 200, nil},
		"JSON in another charset":     {inbound, "{}", media("application/json; charset=iso-8859-1"), 415, "unsupported_media_type"},
		"JSON in UTF-8":               {inbound, "{}", media(`application/json; charset="UTF-8"`), 200, nil},
		"parts in another charset": {
			inbound, "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n", media("multipart/form-data; boundary=x; charset=latin1"), 415, "unsupported_media_type",
		},
		"an encoding in capitals":    {inbound, "{}", func(r *http.Request) { r.Header.Set("Content-Encoding", "Identity") }, 200, nil},
		"a broken form":              {inbound, "a=%f", media("application/x-www-form-urlencoded"), 400, "invalid_form"},
		"a form in another encoding": {inbound, "a=1", media("application/x-www-form-urlencoded; charset=latin1"), 415, "unsupported_media_type"},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.post(b.gateway, c.id, c.body, c.edit)
			require.Equal(t, c.status, got.status, "%v", got.body)
			require.Equal(t, c.code, got.body["code"])
			require.Equal(t, c.status == 405, got.header.Get("Allow") == "GET, POST")
		})
	}
}
