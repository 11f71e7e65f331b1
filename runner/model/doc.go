// SPDX-License-Identifier: Apache-2.0

// Package model provides the models of agents as a small model.LLM: services with OpenAI's Chat
// Completions API, and scripted, a deterministic model that answers from a script of the
// repository. Only this package retries failed requests. An agent as a whole never runs twice.
package model
