// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// defaultBaseURL is the default address of a provider.
const defaultBaseURL = runnerconfig.OpenAIAddress

// openAI calls a service with the Chat Completions API.
type openAI struct {
	service  openai.ChatCompletionService
	provider string
	server   *runtrace.Server
	key      string
	model    string
	settings Settings
	// isOpenAI is true for OpenAI's own service, whose models refuse parameters of its older API.
	isOpenAI bool
}

// newOpenAI configures the client only from the provider. It reads nothing from the process
// environment, which contains variables of tenants.
func newOpenAI(p runnerconfig.Provider, model string, settings Settings, client *http.Client) *openAI {
	base, query, _ := strings.Cut(cmp.Or(p.BaseURL, defaultBaseURL), "?")
	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(base, "/") + "/"),
		option.WithMaxRetries(0), // WithRetry retries according to the agent
		option.WithHTTPClient(client),
		option.WithMiddleware(withQuery(query), giveUpOnSilence, refuseRedirects),
	}
	if p.APIKey != "" {
		opts = append(opts, option.WithAPIKey(p.APIKey))
	}
	m := &openAI{service: openai.NewChatCompletionService(opts...), provider: p.Prefix, key: p.APIKey, model: model, settings: settings}
	if u, err := url.Parse(base); err == nil {
		m.server, m.isOpenAI = runtrace.ServerOf(u), isOpenAI(u.Hostname())
	}
	return m
}

// openAIHosts end the hosts of OpenAI's service.
var openAIHosts = []string{
	".api.openai.com", ".openai.azure.com", ".openai.azure.us", ".cognitiveservices.azure.com", ".services.ai.azure.com",
}

// isOpenAI reports whether a host belongs to OpenAI's service, at OpenAI or at Azure.
func isOpenAI(host string) bool {
	return slices.ContainsFunc(openAIHosts, func(suffix string) bool { return strings.HasSuffix("."+host, suffix) })
}

// withQuery adds the query of the base URL, such as ?api-version=…, to each request, because the
// client drops it.
func withQuery(query string) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if query != "" {
			req.URL.RawQuery = query // requests have no query of their own
		}
		return next(req)
	}
}

// Name returns the reference, provider/model.
func (m *openAI) Name() string { return m.provider + "/" + m.model }

// Server implements Model.
func (m *openAI) Server() *runtrace.Server { return m.server }

// Generate implements Model.
func (m *openAI) Generate(ctx context.Context, req *Request) (*Answer, error) {
	params, err := m.requestParams(req)
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
	return m.readCompletion(completion)
}

func (m *openAI) requestParams(req *Request) (openai.ChatCompletionNewParams, error) {
	params := openai.ChatCompletionNewParams{Model: m.model}
	if m.settings.ReasoningEffort != "" {
		params.ReasoningEffort = shared.ReasoningEffort(m.settings.ReasoningEffort)
	}
	if limit := int64(m.settings.MaxOutputTokens); limit > 0 && m.isOpenAI {
		params.MaxCompletionTokens = openai.Int(limit)
	} else if limit > 0 { // the name that other services know
		params.MaxTokens = openai.Int(limit)
	}
	if req.Temperature != nil {
		params.Temperature = openai.Float(*req.Temperature)
	}
	if req.Instructions != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(req.Instructions))
	}
	tools, err := toolParams(req.Tools)
	if err != nil {
		return params, err
	}
	params.Tools = tools
	for _, content := range req.Contents {
		messages, err := messagesOf(content)
		if err != nil {
			return params, err
		}
		params.Messages = append(params.Messages, messages...)
	}
	return params, nil
}

// requestError classifies an error of the client.
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
		return statusError(api.StatusCode, shorten(redactMessage(message, m.key)), retryAfter(api.Response))
	case errors.Is(err, egress.ErrForbidden):
		return &Error{Code: runerror.ModelAddressForbidden, Message: egress.DescribeForbidden("the address of the model service", err), err: err}
	case errors.Is(err, egress.ErrTooLarge):
		return &Error{Code: runerror.ModelAnswerInvalid, Message: "the model's answer is too large", err: err}
	}
	if own, ok := AsError(err); ok {
		return own
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		return &Error{Code: runerror.ModelUnavailable, Message: "the model service cannot be reached", Retryable: true, err: err}
	}
	return &Error{Code: runerror.ModelAnswerInvalid, Message: "the model's answer is incomplete or not JSON", Retryable: true, err: err}
}

// refuseRedirects turns a redirect into an error.
func refuseRedirects(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err != nil || resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return resp, err
	}
	return nil, errors.Join(resp.Body.Close(), &Error{
		Code: runerror.ModelRequestRejected, Message: "the model service answered with a redirect, which is not followed; correct its base URL",
	})
}

// retryAfter reads the header in seconds or as a date. It returns 0 without the header.
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
	return excerpt.Of(strings.ToValidUTF8(text, ""), most, excerpt.Ellipsis)
}
