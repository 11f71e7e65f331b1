// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

// Builtin returns the tools that each runner has. now is the clock.
func Builtin(now func() time.Time) []Tool {
	return []Tool{currentTime(now)}
}

// builtinTools is the feature of tools that need no file of the repository.
func builtinTools(tools []Tool) Feature {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	slices.Sort(names)
	return Feature{
		Name: "the built-in tools", References: strings.Join(names, ", "),
		NamedTools: func(_ *bundle.Project, reference string) []Tool {
			at := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == reference })
			if at < 0 {
				return nil
			}
			return tools[at : at+1]
		},
	}
}

func currentTime(now func() time.Time) Tool {
	parameters := map[string]any{
		"type": "object",
		"properties": map[string]any{
			"timezone": map[string]any{"type": "string", "description": "IANA time zone such as Europe/Paris; UTC by default."},
		},
		"additionalProperties": false,
	}
	return Tool{
		Name:        "current_time",
		Description: "Returns the current date and time.",
		Parameters:  parameters, Schema: mustCompile(parameters),
		Idempotent: true,
		Run: func(_ context.Context, call *Call) (map[string]any, error) {
			zone, _ := call.Arguments["timezone"].(string)
			location, err := time.LoadLocation(zone) // "" is UTC
			if err != nil || zone == "Local" {
				return nil, fmt.Errorf("unknown time zone %q; use an IANA name such as Europe/Paris", zone)
			}
			at := now().In(location)
			return map[string]any{"time": at.Format(time.RFC3339), "timezone": location.String(), "weekday": at.Weekday().String()}, nil
		},
	}
}

// mustCompile compiles the parameters of a built-in tool.
func mustCompile(parameters map[string]any) *jsonschema.Schema {
	schema, err := CompileArguments("built-in", parameters)
	if err != nil {
		panic(err.Error()) // it depends on no input
	}
	return schema
}
