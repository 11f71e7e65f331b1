// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
)

// answering is a client that records the body of a request and answers it.
type answering struct{ sent map[string]any }

func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := json.NewDecoder(req.Body).Decode(&a.sent); err != nil {
		return nil, err
	}
	body := `{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}, nil
}

// OpenAI's reasoning models refuse max_tokens, and other services do not know max_completion_tokens.
func TestOpenAI_LimitsOutputTokens(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, baseURL string
		limit         int
		want          map[string]any
	}{
		{"no limit", "", 0, map[string]any{}},
		{"OpenAI", "", 2000, map[string]any{"max_completion_tokens": 2000.0}},
		{"OpenAI in a region", "https://eu.api.openai.com/v1", 2000, map[string]any{"max_completion_tokens": 2000.0}},
		{"Azure", "https://ours.openai.azure.com/openai/v1/", 1, map[string]any{"max_completion_tokens": 1.0}},
		{"other service", "https://models.example.com/v1", 2000, map[string]any{"max_tokens": 2000.0}},
		{"Azure AI", "https://ours.cognitiveservices.azure.com/openai/v1", 7, map[string]any{"max_completion_tokens": 7.0}},
		{"similar host", "https://api.openai.com.example.com/v1", 2000, map[string]any{"max_tokens": 2000.0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			service := &answering{}
			registry := &model.Registry{HTTP: &http.Client{Transport: service}, Providers: func() (runnerconfig.Providers, error) {
				return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "ours", Type: "openai", BaseURL: row.baseURL, APIKey: "k"}}}, nil
			}}
			llm, err := registry.Resolve("ours/m", nil, model.Settings{MaxOutputTokens: row.limit})
			require.NoError(t, err)
			_, err = llm.Generate(t.Context(), &model.Request{Contents: []*model.Content{model.TextContent(model.RoleUser, "Hi")}})
			require.NoError(t, err)
			delete(service.sent, "model")
			delete(service.sent, "messages")
			require.Equal(t, row.want, service.sent)
		})
	}
}
