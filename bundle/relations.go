// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"
	"strings"
)

// findCycles reports sequential agents that come to run themselves, and those
// that take too many steps.
func (p *parsing) findCycles() {
	w := walk{parsing: p, steps: map[string]int{}}
	for _, a := range p.project.Agents {
		if a.Type == AgentSequential && p.project.byName[a.Name] == a {
			w.visit(a)
		}
	}
}

// walk goes through sequential agents depth first.
type walk struct {
	*parsing
	// steps counts the agents that each agent runs in the end; 0 while it is
	// being counted.
	steps map[string]int
	path  []string
}

func (w *walk) visit(a *Agent) int {
	if n, seen := w.steps[a.Name]; seen {
		return n
	}
	w.steps[a.Name] = 0
	w.path = append(w.path, a.Name)
	total := 0
	for _, name := range a.Agents {
		next := w.project.byName[name]
		if next == nil || next.Type != AgentSequential {
			total++
			continue
		}
		if at := slices.Index(w.path, name); at >= 0 {
			loop := append(slices.Clone(w.path[at:]), name)
			w.problems.add(a.At("agents"), "agents run each other in a circle: %s", strings.Join(loop, " -> "))
			continue
		}
		total += w.visit(next)
	}
	if total > MaxSteps {
		w.problems.add(a.At("agents"), "runs %d agents in the end, at most %d are allowed", total, MaxSteps)
		total = 1 // Said here, not again for those that run this one.
	}
	w.path = w.path[:len(w.path)-1]
	w.steps[a.Name] = total
	return total
}
