// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// defaultBaseURL is used when a provider names none.
const defaultBaseURL = runnerconfig.OpenAIAddress

// openAI asks a service that speaks Chat Completions.
type openAI struct {
	service  openai.ChatCompletionService
	provider string
	key      string
	model    string
	settings Settings
}

// newOpenAI builds the client from the provider alone: nothing is read from the
// environment, which holds tenants' variables.
func newOpenAI(p runnerconfig.Provider, model string, settings Settings, client *http.Client) *openAI {
	base, query, _ := strings.Cut(cmp.Or(p.BaseURL, defaultBaseURL), "?")
	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(base, "/") + "/"),
		option.WithMaxRetries(0), // WithRetry repeats, as the agent says.
		option.WithHTTPClient(client),
		option.WithMiddleware(withQuery(query), giveUpOnSilence, refuseRedirects),
	}
	if p.APIKey != "" {
		opts = append(opts, option.WithAPIKey(p.APIKey))
	}
	return &openAI{service: openai.NewChatCompletionService(opts...), provider: p.Prefix, key: p.APIKey, model: model, settings: settings}
}

// withQuery adds the query of the base URL to each request, such as ?api-version=…, which the client drops.
func withQuery(query string) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if query != "" {
			req.URL.RawQuery = query // requests have none of their own
		}
		return next(req)
	}
}

// Name is the reference, provider/model.
func (m *openAI) Name() string { return m.provider + "/" + m.model }

// GenerateContent implements model.LLM.
func (m *openAI) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, _ bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) { yield(m.ask(ctx, req)) }
}

func (m *openAI) ask(ctx context.Context, req *adkmodel.LLMRequest) (*adkmodel.LLMResponse, error) {
	params, err := m.params(req)
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	completion, err := m.service.New(ctx, params, option.WithResponseInto(&resp))
	if err != nil {
		return nil, m.requestError(ctx, err)
	}
	if err := checkText(completion); err != nil {
		return nil, err
	}
	if failure := errorIn(completion, m.key, retryAfter(resp)); failure != nil {
		return nil, failure
	}
	return readCompletion(completion)
}

func (m *openAI) params(req *adkmodel.LLMRequest) (openai.ChatCompletionNewParams, error) {
	params := openai.ChatCompletionNewParams{Model: m.model}
	if m.settings.ReasoningEffort != "" {
		params.ReasoningEffort = shared.ReasoningEffort(m.settings.ReasoningEffort)
	}
	if config := req.Config; config != nil {
		if config.Temperature != nil {
			// By way of text, so that 0.1 is sent and not 0.10000000149.
			t, err := strconv.ParseFloat(strconv.FormatFloat(float64(*config.Temperature), 'g', -1, 32), 64)
			if err == nil {
				params.Temperature = openai.Float(t)
			}
		}
		if text := textOf(config.SystemInstruction); text != "" {
			params.Messages = append(params.Messages, openai.SystemMessage(text))
		}
		tools, err := toolParams(config.Tools)
		if err != nil {
			return params, err
		}
		params.Tools = tools
	}
	for _, content := range req.Contents {
		messages, err := messagesOf(content)
		if err != nil {
			return params, err
		}
		params.Messages = append(params.Messages, messages...)
	}
	return params, nil
}

// requestError classifies what the client returned.
func (m *openAI) requestError(ctx context.Context, err error) error {
	var api *openai.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &api):
		message := api.Message
		if message == "" {
			message = http.StatusText(api.StatusCode)
		}
		return statusError(api.StatusCode, shorten(redact(message, m.key)), retryAfter(api.Response))
	case errors.Is(err, egress.ErrForbidden):
		return &Error{Code: CodeForbidden, Message: "the address of the model service is not public, and the operator has not allowed its range for model", err: err}
	case errors.Is(err, egress.ErrTooLarge):
		return &Error{Code: CodeInvalidAnswer, Message: "the model's answer is too large", err: err}
	}
	if own, ok := AsError(err); ok {
		return own
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		return &Error{Code: CodeUnavailable, Message: "the model service cannot be reached", Retryable: true, err: err}
	}
	return &Error{Code: CodeInvalidAnswer, Message: "the model's answer is incomplete or not JSON", Retryable: true, err: err}
}

// refuseRedirects turns an answer that points elsewhere into an error.
func refuseRedirects(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err != nil || resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return resp, err
	}
	return nil, errors.Join(resp.Body.Close(), &Error{
		Code: CodeRejected, Message: "the model service answered with a redirect, which is not followed; correct its base URL",
	})
}

// retryAfter reads the header in seconds or as a date; 0 without it.
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	value := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 && seconds < 1<<20 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

func shorten(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func textOf(content *genai.Content) string {
	if content == nil {
		return ""
	}
	var parts []string
	for _, part := range content.Parts {
		if part.Text != "" && !part.Thought {
			parts = append(parts, part.Text)
		}
	}
	return strings.Join(parts, "\n")
}
