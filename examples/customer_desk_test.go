// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/localrun"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// customer and its result are the arguments and the result of a tool of the server.
type (
	customer struct {
		ID string `json:"id"`
	}
	found struct {
		Name string `json:"name"`
		City string `json:"city"`
	}
	search struct {
		Customer string `json:"customer"`
	}
	orders struct {
		Orders []string `json:"orders"`
	}
)

// startCRM starts an MCP server that requires a token.
func startCRM(t *testing.T) (url string) {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "crm", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "get_customer", Description: "Gets a customer."},
		func(context.Context, *sdk.CallToolRequest, customer) (*sdk.CallToolResult, found, error) {
			return nil, found{"Ada", "London"}, nil
		})
	sdk.AddTool(server, &sdk.Tool{Name: "search_orders", Description: "Lists orders, the newest first."},
		func(context.Context, *sdk.CallToolRequest, search) (*sdk.CallToolResult, orders, error) {
			return nil, orders{[]string{"4711", "4700"}}, nil
		})
	sdk.AddTool(server, &sdk.Tool{Name: "delete_customer", Description: "Deletes a customer."},
		func(context.Context, *sdk.CallToolRequest, customer) (*sdk.CallToolResult, found, error) {
			return nil, found{}, nil
		})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{JSONResponse: true})
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mcp" || r.Header.Get("Authorization") != "Bearer t0ken" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(listening.Close)
	return listening.URL
}

// A build pins the tools that the agent uses. The tests pass with them, and a run calls the server.
func TestCustomerDesk_UsesServer(t *testing.T) {
	t.Parallel()
	_, project := open(t, "customer-desk")
	known := runnerconfig.Sorted([]runnerconfig.Variable{{Name: "CRM_URL", Value: startCRM(t)}, {Name: "CRM_TOKEN", Value: "t0ken", Sensitive: true}})
	variables := func() (runnerconfig.Variables, error) { return known, nil }
	guard := egress.New(egress.DeveloperRules())
	http := guard.Client(egress.MCP, egress.ClientOptions{MaxResponse: mcp.MaxAnswer})
	client := mcp.New(mcp.Config{HTTP: http})
	t.Cleanup(func() {
		client.Close()
		http.CloseIdleConnections()
	})
	require.NoError(t, build.LockTools(t.Context(), client, variables, project, project.Agents, t.Logf))
	locked, _ := project.Lock.Server("crm")
	var names []string
	for _, tool := range locked.Tools {
		names = append(names, tool.Name)
	}
	require.Equal(t, []string{"get_customer", "search_orders"}, names)
	require.Contains(t, project.Files, bundle.LockFile)

	results, err := suite.Run(t.Context(), suite.Options{Project: project, Models: &model.Registry{}})
	require.NoError(t, err)
	for _, r := range results {
		require.True(t, r.Passed, "%s", r.Explain())
	}
	for question, answer := range map[string]string{
		"Who is customer 7?":           "That is Ada from London.",
		"What are the orders of Ada?":  "The newest order is 4711.",
		"Who was the man on Thursday?": "Which customer do you mean? Please give me the number.",
	} {
		t.Run(question, func(t *testing.T) {
			ended, err := localrun.Run(t.Context(), localrun.Options{
				Project: project, Agent: "support", Payload: []byte(`{"question": "` + question + `"}`), Models: &model.Registry{}, Variables: known,
				HTTP: guard.Client(egress.Tool, egress.ClientOptions{MaxResponse: 1 << 20}), MCP: client,
			})
			require.NoError(t, err)
			require.Equal(t, engine.Completed, ended.Status, ended.Error)
			require.Equal(t, answer, ended.Output)
		})
	}
}
