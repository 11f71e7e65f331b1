// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

// startMCP starts an MCP server of npm and returns it once it listens.
func startMCP(t *testing.T, dir string, args ...string) mcp.Server {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().(*net.TCPAddr)
	require.NoError(t, free.Close())
	server := exec.CommandContext(t.Context(), "node", args...)
	server.Dir, server.Env = dir, append(os.Environ(), fmt.Sprintf("PORT=%d", address.Port))
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address.String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	spec := &bundle.MCPServer{Name: "npm", URL: fmt.Sprintf("http://%s/mcp", address)}
	resolved, err := mcp.Resolve(spec, runnerconfig.Variables{}, nil)
	require.NoError(t, err)
	return resolved
}

// The client lists and calls the tools of servers that others have written.
func TestMCP_CallsServersOfNPM(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "sums.mjs"} {
		content, err := os.ReadFile(filepath.Join("mcp", name))
		require.NoError(t, err)
		writeFile(t, dir, name, string(content))
	}
	run(t, nil, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	local := egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.MCP: {netip.MustParsePrefix("127.0.0.0/8")}}}
	for _, row := range []struct {
		name, tool string
		args       []string
		arguments  map[string]any
		want       string
	}{
		{"everything", "echo", []string{"node_modules/@modelcontextprotocol/server-everything/dist/index.js", "streamableHttp"},
			map[string]any{"message": "Grüße"}, "Grüße"},
		{"fastmcp", "add", []string{"sums.mjs"}, map[string]any{"a": json.Number("40"), "b": json.Number("2")}, "42"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := startMCP(t, dir, row.args...)
			http := egress.New(local).Client(egress.MCP, egress.ClientOptions{MaxResponse: mcp.MaxAnswer})
			client := mcp.New(mcp.Config{HTTP: http})
			t.Cleanup(func() {
				client.Close()
				http.CloseIdleConnections()
			})
			listed, err := client.List(t.Context(), server)
			require.NoError(t, err)
			t.Logf("%d tools, protocol %s", len(listed.Tools), listed.Protocol)
			tools, err := client.Tools(server, listed.Tools)
			require.NoError(t, err)
			require.NotEmpty(t, tools)
			for range 2 {
				got, err := client.Call(t.Context(), server, row.tool, row.arguments, false)
				require.NoError(t, err)
				require.Contains(t, fmt.Sprint(got["result"]), row.want)
			}
			_, err = client.Call(t.Context(), server, row.tool, map[string]any{}, false)
			require.Error(t, err, "the server's own error about the arguments")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}
