// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// providers are the values of gen_ai.provider.name for usual prefixes of models. Others are used as they are.
var providers = map[string]string{"gemini": "gcp.gemini", "google": "gcp.gemini"}

// addAnswer adds the span of a model request with its answer, or with the reason why there is none.
func (b *Builder) addAnswer(e *Entry, a *answerEntry) {
	position := modelPosition + a.Agent + ":" + strconv.Itoa(a.Turn)
	if a.Error != "" {
		position = failurePosition + strconv.FormatInt(e.Sequence, 10)
	}
	provider, model := splitModel(a.Model)
	b.agentOf(a.Agent)
	s := b.newSpan(position, KindModel, "chat "+model)
	b.placeSpan(s, "", a.Agent)
	s.Start, s.End = a.timesOf(e.At)
	a.boundUsage()
	s.Sequence, s.Cost, s.Usage = e.Sequence, a.Cost, &a.Usage
	switch s.ErrorType = cutName(a.Error); {
	case a.Error == "":
	case a.Usage == dispatchapi.TokenUsage{}:
		s.Error = "the request to the model failed"
	default:
		s.Error = "the answer of the model was not usable"
	}
	s.Attributes["gen_ai.operation.name"] = "chat"
	s.Attributes["gen_ai.request.model"] = cutName(model)
	if provider != "" {
		s.Attributes["gen_ai.provider.name"] = cutName(cmp.Or(providers[provider], provider))
	}
	a.addAttributes(s)
	a.addAttempts(s)
	s.Output = b.keepContent(a.outputMessages())
}

// splitModel splits a reference, provider/model. An earlier release wrote models without a provider.
func splitModel(reference string) (provider, model string) {
	if provider, model, ok := strings.Cut(reference, "/"); ok {
		return provider, model
	}
	return "", reference
}

// addAttributes adds the facts about a request and its answer.
func (a *answerEntry) addAttributes(s *Span) {
	s.addServer(a.Server)
	if a.Temperature != nil {
		s.Attributes["gen_ai.request.temperature"] = *a.Temperature
	}
	if a.MaxOutput > 0 {
		s.Attributes["gen_ai.request.max_tokens"] = a.MaxOutput
	}
	if a.ResponseModel != "" {
		s.Attributes["gen_ai.response.model"] = cutName(a.ResponseModel)
	}
	if a.FinishReason != "" {
		s.Attributes["gen_ai.response.finish_reasons"] = []string{cutName(a.FinishReason)}
	}
	if a.Turn > 0 {
		s.Attributes["agentplatform.turn"] = a.Turn
	}
	for name, n := range map[string]int64{
		"gen_ai.usage.input_tokens":            a.Usage.InputTokens,
		"gen_ai.usage.output_tokens":           a.Usage.OutputTokens + a.Usage.ThinkingTokens,
		"gen_ai.usage.cache_read.input_tokens": a.Usage.CachedInputTokens,
		"gen_ai.usage.reasoning.output_tokens": a.Usage.ThinkingTokens,
	} {
		if n > 0 {
			s.Attributes[name] = n
		}
	}
}

// addAttempts adds an event for each failed attempt before the end of a request.
func (a *answerEntry) addAttempts(s *Span) {
	for _, failed := range a.Attempts[:min(len(a.Attempts), MaxEvents)] {
		at, _ := failed.timesOf(s.Start)
		_, model := splitModel(failed.Model)
		s.Events = append(s.Events, Event{At: at, Name: attemptEvent, Attributes: map[string]any{
			"error.type": cutName(failed.Error), "gen_ai.request.model": cutName(model),
		}})
	}
}
