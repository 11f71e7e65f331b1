// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expr"
)

// Choose is which A/B variant of an agent executes a run, "" for the agent itself. It
// depends on nothing but the shares, the agent's name and the run's concurrency key, or
// its input where it has none: the same always comes to the same variant. Where shares
// change, few more runs move than have to.
func Choose(project *bundle.Project, agent string, input []byte) string {
	a := project.Agent(agent)
	if a == nil || len(a.Variants) == 0 {
		return ""
	}
	by := input
	if a.Concurrency != nil {
		if key, err := expr.On(input)(a.Concurrency.Key); err == nil && key != "" {
			by = []byte(key)
		}
	}
	return choose(a.Name, a.Variants, by)
}

// choose is rendezvous hashing with weights: each variant draws a number by its own hash,
// distributed exponentially with its share as the rate, and the smallest one wins. What it
// answers is promised to stay: a run goes on elsewhere, perhaps in another release.
func choose(agent string, shares map[string]int, by []byte) (chosen string) {
	left, least, input := 100, math.Inf(1), sha256.Sum256(by)
	draw := func(variant string, share int) {
		if share <= 0 {
			return
		}
		if drawn := -math.Log(unit(agent, variant, input)) / float64(share); drawn < least {
			chosen, least = variant, drawn
		}
	}
	for _, variant := range slices.Sorted(maps.Keys(shares)) {
		left -= shares[variant]
		draw(variant, shares[variant])
	}
	draw("", left)
	return chosen
}

// unit is a number between 0 and 1, neither of them, that a hash of its arguments tells.
func unit(agent, variant string, input [sha256.Size]byte) float64 {
	hash := sha256.Sum256(append([]byte(agent+"\x00"+variant+"\x00"), input[:]...))
	return (float64(binary.BigEndian.Uint64(hash[:])>>11) + 0.5) / (1 << 53)
}

// agent is the one that executes the run: the variant where there is one.
func (in Input) agent() (*bundle.Agent, error) {
	of := in.Project.Agent(in.AgentName)
	switch {
	case of == nil:
		return nil, &failure{code: CodeAgentNotFound, message: fmt.Sprintf("the deployment has no agent %q", in.AgentName)}
	case of.VariantOf != "":
		return nil, &failure{code: CodeAgentNotFound, message: fmt.Sprintf("agent %q is an A/B variant, which executes its share of the runs of %q", of.Name, of.VariantOf)}
	case in.TestName == "":
		return of, nil
	}
	if variant := in.Project.Variant(of.Name, in.TestName); variant != nil {
		return variant, nil
	}
	return nil, &failure{code: CodeAgentNotFound, message: fmt.Sprintf("the deployment has no variant %q of agent %q", in.TestName, of.Name)}
}
