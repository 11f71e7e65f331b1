// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// modelServer implements OpenAI's Chat Completions API. It counts its requests and holds responses back, so that a test chooses
// when a runner is lost. The model's name selects the behavior:
//   - "resume" calls current_time twice and answers.
//   - "book" calls the slow tool and answers.
//   - "echo" answers with its system prompt at once.
type modelServer struct {
	url    string
	server *httptest.Server

	mutex sync.Mutex
	plays map[string]*play
}

// play records the requests of one run. The key in the run's input identifies it.
type play struct {
	asked map[int]int    // turn → requests
	from  map[int]string // turn → address of the last asker
	left  map[int]int    // turn → requests that their asker broke off
	held  chan struct{}  // closed: answers are given
}

var keyPattern = regexp.MustCompile(`key-[0-9a-f-]{36}`)

func startModel(addr string) *modelServer {
	GinkgoHelper()
	listener, err := net.Listen("tcp", addr)
	Expect(err).NotTo(HaveOccurred(), "the address at which pods reach this machine; set E2E_NODE_ADDRESS where it is another")
	m := &modelServer{plays: map[string]*play{}}
	m.server = httptest.NewUnstartedServer(m)
	m.server.Listener = listener
	m.server.Start()
	m.url = "http://" + listener.Addr().String()
	return m
}

func (m *modelServer) play(key string) *play {
	p, ok := m.plays[key]
	if !ok {
		p = &play{asked: map[int]int{}, from: map[int]string{}, left: map[int]int{}, held: make(chan struct{})}
		m.plays[key] = p
	}
	return p
}

// asked returns the number of requests for a turn and the sender of the last request.
func (m *modelServer) asked(key string, turn int) (int, string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	p := m.play(key)
	return p.asked[turn], p.from[turn]
}

// left returns the number of requests for a turn that the client aborted.
func (m *modelServer) left(key string, turn int) int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.play(key).left[turn]
}

// release releases the held responses of a run.
func (m *modelServer) release(key string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	close(m.play(key).held)
}

// note records a request and returns where it waits.
func (m *modelServer) note(key string, turn int, from string) chan struct{} {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	p := m.play(key)
	p.asked[turn]++
	p.from[turn], _, _ = net.SplitHostPort(from)
	return p.held
}

const toolTurn = 100 // where the slow tool's calls are counted

func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := keyPattern.FindString(string(body) + r.URL.Path)
	if strings.HasPrefix(r.URL.Path, "/book/") { // the tool at work
		select {
		case <-m.note(key, toolTurn, r.RemoteAddr):
		case <-r.Context().Done():
		}
		return
	}
	var request struct {
		Model    string `json:"model"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &request); err != nil || r.Header.Get("Authorization") != "Bearer e2e-key" {
		http.Error(w, `{"error":{"message":"bad request or key"}}`, http.StatusUnauthorized)
		return
	}
	turn := 1
	for _, message := range request.Messages {
		if message.Role == "assistant" {
			turn++
		}
	}
	held := m.note(key, turn, r.RemoteAddr)
	message := map[string]any{"role": "assistant", "content": "All done."}
	finish := "stop"
	switch {
	case request.Model == "resume" && turn < 3:
		message, finish = toolCall(key, turn, "current_time", `{}`), "tool_calls"
	case request.Model == "book" && turn == 1:
		message, finish = toolCall(key, turn, "book", fmt.Sprintf(`{"url":%q}`, m.url+"/book/"+key)), "tool_calls"
	case request.Model == "echo" && len(request.Messages) > 0:
		message["content"] = string(request.Messages[0].Content)
	default:
		select {
		case <-held:
		case <-r.Context().Done():
			m.mutex.Lock()
			defer m.mutex.Unlock()
			m.play(key).left[turn]++
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "chatcmpl-" + key, "object": "chat.completion", "created": time.Now().Unix(), "model": request.Model,
		"choices": []any{map[string]any{"index": 0, "finish_reason": finish, "message": message}},
		"usage":   map[string]any{"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
	})
}

func toolCall(key string, turn int, name, arguments string) map[string]any {
	return map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
		"id": fmt.Sprintf("call-%d-%s", turn, key[len(key)-8:]), "type": "function",
		"function": map[string]any{"name": name, "arguments": arguments},
	}}}
}
