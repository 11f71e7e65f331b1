// SPDX-License-Identifier: Apache-2.0

// Command adk is a yardstick of test/bench: the loop of a model and a tool in Google's ADK, without a platform. Its model
// answers at once: first with a call of the tool, then with a text. The tool sends one GET.
//
//	adk URL runs
//
// It prints the processor time of a run in microseconds. The module is separate, so that the platform does not depend on ADK.
package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

// warmUp is the number of runs before the measured ones.
const warmUp = 100

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: adk URL runs")
	}
	runs, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	shop, err := newRunner(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	before := int64(0)
	for i := range warmUp + runs {
		if i == warmUp {
			before = processorTime()
		}
		if err := execute(shop, strconv.Itoa(i)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("%.3f\n", float64(processorTime()-before)/1000/float64(runs))
}

// execute is one run, in a session of its own.
func execute(shop *runner.Runner, session string) error {
	text := ""
	for event, err := range shop.Run(context.Background(), "user", session, genai.NewContentFromText(`{"order":"A1"}`, genai.RoleUser), agent.RunConfig{}) {
		if err != nil {
			return err
		}
		if event.Content != nil {
			for _, part := range event.Content.Parts {
				text = part.Text
			}
		}
	}
	if text != answer {
		return fmt.Errorf("the run ended with %q", text)
	}
	return nil
}

// newRunner returns a runner of an agent with one tool.
func newRunner(url string) (*runner.Runner, error) {
	find, err := functiontool.New(functiontool.Config{Name: "find", Description: "Finds an order."}, func(_ agent.Context, in order) (found, error) {
		response, err := http.Get(url) //nolint:noctx // as short as can be
		if err != nil {
			return found{}, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return found{Status: response.StatusCode, Bytes: len(body)}, err
	})
	if err != nil {
		return nil, err
	}
	shop, err := llmagent.New(llmagent.Config{Name: "shop", Model: scripted{}, Instruction: "Help.", Tools: []tool.Tool{find}})
	if err != nil {
		return nil, err
	}
	return runner.NewInMemory("bench", shop)
}

type order struct {
	Order string `json:"order"`
}

type found struct {
	Status int `json:"status"`
	Bytes  int `json:"bytes"`
}

// answer is the last text of the model.
const answer = "Found."

// scripted answers a message with a call, and the result of the call with a text.
type scripted struct{}

func (scripted) Name() string { return "scripted" }

func (scripted) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	content := genai.NewContentFromFunctionCall("find", map[string]any{"order": "A1"}, genai.RoleModel)
	if last := req.Contents[len(req.Contents)-1]; last.Parts[0].FunctionResponse != nil {
		content = genai.NewContentFromText(answer, genai.RoleModel)
	}
	return func(yield func(*model.LLMResponse, error) bool) {
		yield(&model.LLMResponse{Content: content, TurnComplete: true}, nil)
	}
}

// processorTime returns the processor time of this process in nanoseconds.
func processorTime() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
