// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// variantMark stands between base and variant in a file's stem.
const variantMark = "-test-"

// baseEntry is the name by which runs without a variant are asked for: no variant's.
const baseEntry = "__base__"

// ofBase are keys that count for all runs of an agent, whichever variant executes them:
// they stand in the file of the base.
var ofBase = []string{"variants", "max_concurrent_runs", "concurrency", "session"}

// variantFile parts the file of an A/B variant into that of its base and the variant's
// name; not ok of any other file.
func variantFile(file string) (base, variant string, ok bool) {
	base, variant, ok = strings.Cut(stem(file), variantMark)
	if !ok || base == "" || variant == "" {
		return "", "", false
	}
	return path.Join(path.Dir(file), base+".yaml"), variant, true
}

// Variant returns the variant of an agent by its name, or nil.
func (p *Project) Variant(agent, name string) *Agent {
	i := slices.IndexFunc(p.Agents, func(a *Agent) bool { return a.VariantOf == agent && a.TestName == name })
	if i < 0 {
		return nil
	}
	return p.Agents[i]
}

// RunsOf is the agent whose runs another one executes: the base of a variant, and of any
// other agent itself.
func (p *Project) RunsOf(agent string) string {
	if a := p.byName[agent]; a != nil && a.VariantOf != "" {
		return a.VariantOf
	}
	return agent
}

// linkVariants ties A/B variants to their bases: the agent beside each whose file is named
// like the part before the mark.
func (p *parsing) linkVariants() {
	byFile := make(map[string]*Agent, len(p.project.Agents))
	for _, a := range p.project.Agents {
		byFile[a.SourcePath] = a
		maps.DeleteFunc(a.Variants, func(name string, _ int) bool { return !a.source.written("variants", name) })
	}
	for _, a := range p.project.Agents {
		if file, variant, ok := variantFile(a.SourcePath); ok {
			p.linkVariant(a, byFile[file], file, variant)
		} else if a.source.written("variants") {
			p.checkShares(a, byFile)
		}
	}
}

// linkVariant ties a variant to its base, nil where there is none.
func (p *parsing) linkVariant(a, base *Agent, file, variant string) {
	at := Position{File: a.SourcePath}
	if base == nil {
		p.problems.add(at, "is named like a variant of %s, which is not there; rename it if it is not a variant", file)
		return
	}
	a.VariantOf, a.TestName = base.Name, variant
	if !agentName.MatchString(variant) || len(variant) > maxName {
		p.problems.add(at, "a variant's name, what follows %q, is at most %d lower-case letters, digits and inner dashes, not %q",
			variantMark, maxName, variant)
	} else if _, named := base.Variants[variant]; !named {
		p.problems.add(at, `is a variant that the "variants" of %s do not name, so that it would never run; write variants: {%s: 10} there, or remove this file`,
			file, variant)
	}
	for _, key := range ofBase {
		if a.source.written(key) {
			p.problems.add(a.At(key), "%q is for the runs of agent %q, whichever variant executes them; write it in %s", key, base.Name, file)
		}
	}
}

// checkShares checks what an agent says of its variants.
func (p *parsing) checkShares(a *Agent, byFile map[string]*Agent) {
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(a.Variants)) {
		at, weight := a.At("variants", name), a.Variants[name]
		file := strings.TrimSuffix(a.SourcePath, ".yaml") + variantMark + name + ".yaml"
		switch {
		case name == baseEntry:
			p.problems.add(at, "the agent itself executes what its variants leave of 100; remove the entry %q", name)
		case byFile[file] == nil:
			p.problems.add(at, "variant %q needs the file %s, which is not there; write it or remove the entry", name, printable(file))
		case weight < 0 || weight > 100:
			p.problems.add(at, `"variants.%s" is a percentage of the runs, between 0 and 100, not %d`, name, weight)
		default:
			sum += weight
		}
	}
	switch {
	case len(a.Variants) == 0:
		p.problems.add(a.At("variants"), `"variants" names none; remove it`)
	case len(a.Variants) > maxVariants:
		p.problems.add(a.At("variants"), "an agent has at most %d variants", maxVariants)
	case sum > 100:
		p.problems.add(a.At("variants"), `"variants" are percentages of the runs, at most 100 together, not %d`, sum)
	}
}

// refusesVariant reports a variant where an agent is named that events or other agents
// are to run, and says whether it is one.
func (p *parsing) refusesVariant(at Position, name string) bool {
	a := p.project.byName[name]
	if a == nil || a.VariantOf == "" {
		return false
	}
	p.problems.add(at, "agent %q is an A/B variant, which executes its share of the runs of %q; name that one", name, a.VariantOf)
	return true
}
