// SPDX-License-Identifier: Apache-2.0

// Package model is the models that agents ask, each a small model.LLM: services
// that speak OpenAI's Chat Completions, and scripted, a deterministic model that
// answers from a script of the repository. Failed requests are repeated here,
// and only here: an agent as a whole is never run twice.
package model
