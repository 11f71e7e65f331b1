// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path"
	"slices"
	"strings"
)

// stepsFolder holds the scripts that are steps of sequential agents.
const stepsFolder = "steps"

// The parameters that the function of a step may have, beside contextParameter.
const (
	StepInputParameter   = "input"
	StepResultsParameter = "steps"
)

// StepScript is a function of a script that is a step of a sequential agent.
type StepScript struct {
	File, Function string
	// TakesInput, TakesSteps and TakesContext tell which parameters the function has.
	TakesInput, TakesSteps, TakesContext bool
}

// StepScript returns the function that a step names, such as steps.enrich.run for the function run of steps/enrich.star. It
// returns nil if there is none.
func (p *Project) StepScript(reference string) *StepScript {
	file, function := stepFunction(reference)
	f := p.starlark[file]
	if f == nil || f.function(function) == nil {
		return nil
	}
	names := parameterNames(f.function(function))
	return &StepScript{
		File: file, Function: function, TakesInput: slices.Contains(names, StepInputParameter),
		TakesSteps: slices.Contains(names, StepResultsParameter), TakesContext: slices.Contains(names, contextParameter),
	}
}

// stepFunction returns the script and the function of a reference, "" for another form.
func stepFunction(reference string) (file, function string) {
	stem := strings.TrimSuffix(reference, path.Ext(reference))
	if !codeName.MatchString(reference) || strings.HasSuffix(reference, wildcard) || !strings.HasPrefix(stem, stepsFolder+".") {
		return "", ""
	}
	return strings.ReplaceAll(stem, ".", "/") + ".star", strings.TrimPrefix(path.Ext(reference), ".")
}

// checkStepScript checks the function that a step names.
func (p *repoParser) checkStepScript(at Position, reference string) {
	file, function := stepFunction(reference)
	f := p.project.starlark[file]
	switch {
	case file == "":
		p.problems.add(at, "%q is not the function of a step; write steps.file.function for a function of steps/file.star", reference)
		return
	case !p.hasFile(file):
		p.problems.add(at, "%q needs the script %s, which does not exist", reference, file)
		return
	case f == nil: // The file's own problems are reported.
		return
	}
	def := f.function(function)
	if def == nil {
		p.problems.add(at, "%q: %s has no function %s%s", reference, file, function, knownFunctions(f))
		return
	}
	allowed := []string{StepInputParameter, StepResultsParameter, contextParameter}
	for _, name := range parameterNames(def) {
		if !slices.Contains(allowed, name) {
			p.problems.add(starlarkPosition(file, def.Name.NamePos), "%s cannot have the parameter %s; the function of a step has any of %s",
				function, name, strings.Join(allowed, ", "))
		}
	}
}

// stepScripts returns the references of the scripts that the steps of the agent run, each as often as it runs.
func (a *Agent) stepScripts() (references []string) {
	for i := range a.Steps {
		for _, action := range a.Steps[i].Actions() {
			if action.Script != "" {
				references = append(references, action.Script)
			}
		}
	}
	return references
}
