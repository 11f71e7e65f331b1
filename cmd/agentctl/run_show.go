// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/localrun"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxShownValue limits arguments, results and texts of a step, in bytes. The JSON output has all.
const maxShownValue = 400

// stepPrinter prints steps while they happen.
type stepPrinter struct {
	out io.Writer
	// agent is the agent of the last printed step.
	agent string
}

// printStep prints a step in one line.
func (p *stepPrinter) printStep(s localrun.Step) {
	if s.Agent != p.agent || s.Kind == localrun.AgentStarted {
		p.agent = s.Agent
		fmt.Fprintf(p.out, "%s %s\n", paintAs(p.out, bold, "agent"), printable(s.Agent))
	}
	if line := p.describe(s); line != "" {
		fmt.Fprintf(p.out, "  %s %s\n", paintAs(p.out, gray, fmt.Sprintf("%7.2fs", seconds(s.AtMS))), line)
	}
}

// describe returns the line of a step, "" for none.
func (p *stepPrinter) describe(s localrun.Step) string {
	switch s.Kind {
	case localrun.ModelAnswer:
		line := fmt.Sprintf("model %s, turn %d, %.2fs", printable(s.Model), s.Turn, seconds(s.MS))
		if s.Usage != nil {
			line += fmt.Sprintf(", %d + %d tokens", s.Usage.InputTokens, s.Usage.OutputTokens+s.Usage.ThinkingTokens)
		}
		if s.Cost != nil {
			line += ", " + formatCost(*s.Cost)
		}
		if note := describeFinish(string(s.FinishReason)); note != "" {
			line += ", " + paintAs(p.out, red, note)
		}
		if s.Text != "" {
			line += ": " + shortenValue(s.Text)
		}
		return line
	case localrun.ModelFailure:
		return paintAs(p.out, red, fmt.Sprintf("model %s, turn %d, %.2fs: %s", printable(s.Model), s.Turn, seconds(s.MS), shortenValue(s.Error)))
	case localrun.ToolStarted:
		return fmt.Sprintf("%s %s", paintAs(p.out, yellow, "call "+printable(s.Tool)), shortenValue(compactJSON(s.Arguments)))
	case localrun.ToolResult:
		if s.Error != "" {
			return fmt.Sprintf("%s %s", paintAs(p.out, red, "error of "+printable(s.Tool)+":"), shortenValue(s.Error))
		}
		return fmt.Sprintf("%s %s", paintAs(p.out, green, "result of "+printable(s.Tool)), shortenValue(compactJSON(s.Result)))
	case localrun.ToolRejected:
		return fmt.Sprintf("%s %s", paintAs(p.out, red, "rejected call of "+printable(s.Tool)+":"), shortenValue(s.Error))
	case localrun.Request:
		line := fmt.Sprintf("http %s %s, %.2fs: ", printable(s.Method), printable(s.URL), seconds(s.MS))
		if s.Error != "" {
			return line + paintAs(p.out, red, shortenValue(s.Error))
		}
		return line + fmt.Sprint(s.Status)
	case localrun.ScriptEnded:
		return p.describeScript(s)
	case localrun.Log:
		line := fmt.Sprintf("log %s: %s", s.Line.Level, shortenValue(s.Line.Text))
		if len(s.Line.Fields) > 0 {
			line += " " + shortenValue(string(s.Line.Fields))
		}
		if s.Line.Position != "" {
			line += " (" + printable(s.Line.Position) + ")"
		}
		return line
	}
	return ""
}

// describeScript returns the line of a script that ended.
func (p *stepPrinter) describeScript(s localrun.Step) string {
	color, outcome, text := green, s.Outcome, string(s.Value)
	switch {
	case s.Error != "":
		color, outcome, text = red, s.Outcome+":", s.Error
	case s.Outcome != "ended":
		color = yellow
	}
	return fmt.Sprintf("script %s, %.2fs: %s %s", printable(s.Script), seconds(s.MS), paintAs(p.out, color, printable(outcome)), shortenValue(text))
}

// describeFinish returns what happened to a model answer that is not complete, "" for any other answer.
func describeFinish(reason string) string {
	switch model.FinishReason(reason) {
	case model.FinishLength:
		return "cut off by a limit of tokens"
	case model.FinishContentFilter:
		return "filtered by the model service"
	}
	return ""
}

func seconds(milliseconds int64) float64 {
	return (time.Duration(milliseconds) * time.Millisecond).Seconds()
}

// shortenValue returns a text in one line of limited length.
func shortenValue(text string) string {
	return printable(shorten(strings.Join(strings.Fields(text), " "), maxShownValue))
}

func compactJSON(value map[string]any) string {
	if value == nil {
		return "{}"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// formatCost returns an amount with its currency.
func formatCost(c dispatchapi.Cost) string { return formatAmount(c.Nanos) + " " + c.Currency }

// formatAmount returns billionths as a decimal number.
func formatAmount(nanos int64) string {
	const billion, decimals = 1_000_000_000, 9
	text := big.NewRat(nanos, billion).FloatString(decimals)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// runResult is the result of `run` for programs, with the field names of the REST API.
type runResult struct {
	RunID        string                 `json:"run_id"`
	AgentName    string                 `json:"agent_name"`
	Status       string                 `json:"status"`
	Output       string                 `json:"output"`
	FinishReason *string                `json:"finish_reason"`
	ErrorCode    *string                `json:"error_code"`
	Error        *string                `json:"error"`
	Remedy       *string                `json:"remedy"`
	DurationMS   int64                  `json:"duration_ms"`
	TokenUsage   dispatchapi.TokenUsage `json:"token_usage"`
	Costs        []runCost              `json:"costs"`
	Steps        []localrun.Step        `json:"steps"`
}

// runCost is an amount of money.
type runCost struct {
	Currency string      `json:"currency"`
	Amount   json.Number `json:"amount"`
}

// printResult prints the output and the totals.
func (o *runOptions) printResult(ctx context.Context, r *localrun.Result) error {
	code, message := failureOf(ctx, r)
	if o.output != outputText {
		shown := runResult{
			RunID: r.RunID, AgentName: o.agent, Status: string(r.Status), Output: r.Output, DurationMS: r.Duration.Milliseconds(),
			TokenUsage: r.Usage, Costs: []runCost{}, Steps: r.Steps,
		}
		if reason := string(r.FinishReason); reason != "" {
			shown.FinishReason = &reason
		}
		if message != "" {
			shown.ErrorCode, shown.Error = &code, &message
		}
		if remedy := remedies[runerror.Code(code)]; remedy != "" {
			shown.Remedy = &remedy
		}
		for _, c := range r.Costs {
			shown.Costs = append(shown.Costs, runCost{c.Currency, json.Number(formatAmount(c.Nanos))})
		}
		return o.output.printValue(o.out, shown)
	}
	if r.Status == engine.Completed {
		fmt.Fprintln(o.out, printableLines(r.Output))
	}
	turns := 0
	for _, s := range r.Steps {
		if s.Kind == localrun.ModelAnswer {
			turns++
		}
	}
	line := fmt.Sprintf("%s in %.2fs: %s, %s, %s", paintStatus(o.messages, string(r.Status)), r.Duration.Seconds(),
		formatCount(turns, "answer")+" of models", formatCount(len(r.Calls), "tool call"), formatCount(int(r.Usage.TotalTokens), "token"))
	for _, c := range r.Costs {
		line += ", " + formatCost(c)
	}
	fmt.Fprintln(o.messages, line)
	return nil
}

// failureOf returns the code and the text of the error of a run, "" for a completed one.
func failureOf(ctx context.Context, r *localrun.Result) (code, message string) {
	switch {
	case r.Status == engine.Failed:
		return string(r.ErrorCode), r.Error
	case r.Status == engine.Completed:
		return "", ""
	case ctx.Err() != nil:
		return "interrupted", context.Cause(ctx).Error()
	case r.Cause != nil:
		return "interrupted", r.Cause.Error()
	}
	return "interrupted", "the run did not end"
}

// outcome returns an outcomeError if the run failed, with the code of the error and a remedy.
func (o *runOptions) outcome(ctx context.Context, r *localrun.Result) error {
	code, message := failureOf(ctx, r)
	if message == "" {
		return nil
	}
	text := fmt.Sprintf("the run failed with %s: %s", code, message)
	if remedy := remedies[runerror.Code(code)]; remedy != "" {
		text += "\n" + remedy
	}
	return &outcomeError{text}
}

// remedies are the remedies of errors on this machine, by their codes.
var remedies = map[runerror.Code]string{
	runerror.ModelUnknownProvider:  "set the address and the key of the service, such as OPENAI_API_KEY for openai/..., or replace the model with --model",
	runerror.ModelUnauthorized:     "correct the key of the service in the environment variable, such as OPENAI_API_KEY",
	runerror.ModelUnavailable:      "check that the service of the model runs at the address in its environment variable, such as OPENAI_BASE_URL",
	runerror.ModelRateLimited:      "wait and run the agent again, or replace the model with --model",
	runerror.ModelRequestRejected:  "correct the request: the name of the model, the size of the input, or the step of the script that is missing",
	runerror.ModelAddressForbidden: "use another address for the service; link-local addresses are not allowed",
	runerror.VariableUnavailable:   "set the variable with --env NAME=VALUE; prompts cannot use variables that --sensitive names",
	runerror.FilesRequired:         "add an attachment with --file",
	runerror.MaxIterationsExceeded: "raise max_iterations of the agent, or tell it in its prompt when to stop",
	runerror.Timeout:               "raise timeout of the agent, or make its tools faster",
	runerror.ToolArgumentsInvalid:  "describe the parameters of the tool more precisely, so that the model gives arguments that fit",
	runerror.ToolFailed:            "correct the tool, or give the step a condition in \"when\"",
}
