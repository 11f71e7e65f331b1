// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The gateway accepts all requests while hundreds of connections send theirs very slowly.
func TestGateway_ServesBesideSlowClients(t *testing.T) {
	const (
		requests, connections = 5000, 100
		slow                  = 300
	)
	p := startPlatform(t)
	c := p.connector("events", nil)
	hook, err := url.Parse(p.webhookURL(c))
	require.NoError(t, err)
	half := map[string]string{
		"in the request line": "POST " + hook.Path[:10],
		"in a header":         "POST " + hook.RequestURI() + " HTTP/1.1\r\nHost: a\r\nContent-Type: applic",
		"in the body":         "POST " + hook.RequestURI() + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n{\"a\":\"",
	}
	for range slow / len(half) {
		for where, text := range half {
			connection, err := net.Dial("tcp", hook.Host)
			require.NoError(t, err)
			t.Cleanup(func() { _ = connection.Close() }) // The gateway may have closed it.
			_, err = connection.Write([]byte(text))
			require.NoError(t, err, where)
		}
	}
	body := filepath.Join(t.TempDir(), "body.json")
	writeFile(t, filepath.Dir(body), "body.json", `{"order": 42}`)
	out := run(t, nil, "", "h2load", "--h1", "-n", fmt.Sprint(requests), "-c", fmt.Sprint(connections), "-d", body,
		"-H", "Content-Type: application/json", hook.String())
	require.Regexp(t, fmt.Sprintf(`status codes: %d 2xx, 0 3xx, 0 4xx, 0 5xx`, requests), out)
	require.Regexp(t, regexp.MustCompile(fmt.Sprintf(`%d succeeded, 0 failed, 0 errored, 0 timeout`, requests)), out)
	_, total := p.listRuns(c)
	require.EqualValues(t, requests, total, "each that was answered is there, once")
}
