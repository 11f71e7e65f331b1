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
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// Choose returns the A/B variant that executes a run, or "" for the agent itself. It depends only
// on the shares, the agent's name and the run's concurrency key, or its input if there is no key.
// The same values always select the same variant. A change of shares moves as few runs as possible.
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
	return chooseVariant(a.Name, a.Variants, by)
}

// chooseVariant is weighted rendezvous hashing: each variant gets a number from its own hash,
// exponentially distributed with its share as the rate, and the smallest number wins. The result
// must never change, because a run can continue in another release.
func chooseVariant(agent string, shares map[string]int, by []byte) (chosen string) {
	left, least, input := 100, math.Inf(1), sha256.Sum256(by)
	draw := func(variant string, share int) {
		if share <= 0 {
			return
		}
		if drawn := -math.Log(hashFraction(agent, variant, input)) / float64(share); drawn < least {
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

// hashFraction returns a number between 0 and 1, exclusive, from a hash of its arguments.
func hashFraction(agent, variant string, input [sha256.Size]byte) float64 {
	hash := sha256.Sum256(append([]byte(agent+"\x00"+variant+"\x00"), input[:]...))
	return (float64(binary.BigEndian.Uint64(hash[:])>>11) + 0.5) / (1 << 53)
}

// executingAgent returns the agent that executes the run: the variant if there is one.
func (in Input) executingAgent() (*bundle.Agent, error) {
	of := in.Project.Agent(in.AgentName)
	switch {
	case of == nil:
		return nil, &failure{code: runerror.AgentNotFound, message: fmt.Sprintf("the deployment has no agent %q", in.AgentName)}
	case of.VariantOf != "":
		return nil, &failure{code: runerror.AgentNotFound, message: fmt.Sprintf("agent %q is an A/B variant, which executes its share of the runs of %q", of.Name, of.VariantOf)}
	case in.TestName == "":
		return of, nil
	}
	if variant := in.Project.Variant(of.Name, in.TestName); variant != nil {
		return variant, nil
	}
	return nil, &failure{code: runerror.AgentNotFound, message: fmt.Sprintf("the deployment has no variant %q of agent %q", in.TestName, of.Name)}
}
