// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"
)

// Builtin returns the tools that every runner has; now is the clock.
func Builtin(now func() time.Time) []Tool {
	return []Tool{currentTime(now)}
}

func currentTime(now func() time.Time) Tool {
	return Tool{
		Name:        "current_time",
		Description: "Returns the current date and time.",
		Parameters: map[string]any{
			"type": "object",
			"properties": map[string]any{
				"timezone": map[string]any{"type": "string", "description": "IANA time zone such as Europe/Paris; UTC when left out."},
			},
			"additionalProperties": false,
		},
		Idempotent: true,
		Run: func(_ context.Context, args map[string]any) (map[string]any, error) {
			zone, _ := args["timezone"].(string)
			location, err := time.LoadLocation(zone) // "" is UTC
			if err != nil || zone == "Local" {
				return nil, fmt.Errorf("unknown time zone %q; use an IANA name such as Europe/Paris", zone)
			}
			at := now().In(location)
			return map[string]any{"time": at.Format(time.RFC3339), "timezone": location.String(), "weekday": at.Weekday().String()}, nil
		},
	}
}
