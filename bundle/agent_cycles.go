// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"
	"strings"
)

// findCycles reports sequential agents that run themselves, directly or through other agents, and those with too many
// steps.
func (p *repoParser) findCycles() {
	w := cycleFinder{repoParser: p, steps: map[string]int{}}
	for _, a := range p.project.Agents {
		if a.Type == AgentSequential && p.project.byName[a.Name] == a {
			w.countSteps(a)
		}
	}
}

// cycleFinder visits sequential agents depth first.
type cycleFinder struct {
	*repoParser
	// steps is the number of agents, tools and scripts that an agent runs with all nested steps, 0 during the count.
	steps map[string]int
	path  []string
}

func (w *cycleFinder) countSteps(a *Agent) int {
	if n, seen := w.steps[a.Name]; seen {
		return n
	}
	w.steps[a.Name] = 0
	w.path = append(w.path, a.Name)
	total := 0
	total += len(a.StepTools()) + len(a.stepScripts())
	for _, name := range a.subagents() {
		next := w.project.byName[name]
		if next == nil || next.Type != AgentSequential {
			total++
			continue
		}
		if at := slices.Index(w.path, name); at >= 0 {
			loop := append(slices.Clone(w.path[at:]), name)
			w.problems.add(a.At(a.stepsKey()), "agents run each other in a loop: %s", strings.Join(loop, " -> "))
			continue
		}
		total += w.countSteps(next)
	}
	if total > MaxSteps {
		w.problems.add(a.At(a.stepsKey()), "runs %d agents with all nested steps; at most %d are allowed", total, MaxSteps)
		total = 1 // Reported here, and not again for agents that run this one.
	}
	w.path = w.path[:len(w.path)-1]
	w.steps[a.Name] = total
	return total
}
