// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// runStep runs a script that is a step of a sequential agent, with the limits of a tool. The step is recorded, so that the
// script does not run again after it ended.
func (f *feature) runStep(ctx context.Context, at *engine.Scope, step engine.StepScript) (json.RawMessage, error) {
	function := at.Project().StepScript(step.Reference)
	if function == nil {
		return nil, engine.NewFailure(runerror.NotSupported, fmt.Sprintf("the deployment has no script %q", step.Reference), nil)
	}
	args := map[string]any{}
	if function.TakesInput {
		args[bundle.StepInputParameter] = step.Input
	}
	if function.TakesSteps {
		args[bundle.StepResultsParameter] = step.Results
	}
	ended, err := f.run(ctx, around{
		scope: at, owner: bundle.OwnerTool, step: step.Owner, file: function.File, function: function.Function, args: args,
		hidesContext: !function.TakesContext, check: func(json.RawMessage) error { return nil },
	})
	return ended.Result, err
}
