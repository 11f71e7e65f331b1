// SPDX-License-Identifier: Apache-2.0

// Command fakemodel speaks OpenAI's Chat Completions and greets: for trying the
// demo's OPENAI_* variables without a service and its bill.
package main

import (
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8090", "address to listen on")
	key := flag.String("key", "demo-key", "API key that requests must have")
	flag.Parse()
	server := &http.Server{Addr: *addr, Handler: answers(*key), ReadHeaderTimeout: 5 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		slog.Error("serving", "error", err)
		os.Exit(1)
	}
}

func answers(key string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Model    string            `json:"model"`
			Messages []json.RawMessage `json:"messages"`
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+key {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"wrong API key","type":"invalid_request_error"}}`))
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{ // a client that went needs no answer
			"id": "chatcmpl-1", "object": "chat.completion", "created": time.Now().Unix(), "model": request.Model,
			"choices": []any{map[string]any{
				"index": 0, "finish_reason": "stop",
				"message": map[string]any{"role": "assistant", "content": "Hello Ada, I am " + request.Model + "."},
			}},
			"usage": map[string]any{"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
		})
	})
	return mux
}
