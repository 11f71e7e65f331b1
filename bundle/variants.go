// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// variantMark is the text between base and variant in the stem of a file.
const variantMark = "-test-"

// baseEntry selects the runs without a variant in filters. No variant may have this name.
const baseEntry = "__base__"

// variantFile splits the file of an A/B variant into the file of its base and the name of the variant. ok is false for any
// other file.
func variantFile(file string) (base, variant string, ok bool) {
	base, variant, ok = strings.Cut(fileStem(file), variantMark)
	if !ok || base == "" || variant == "" {
		return "", "", false
	}
	return path.Join(path.Dir(file), base+".yaml"), variant, true
}

// Variant returns the variant of an agent with a name, or nil.
func (p *Project) Variant(agent, name string) *Agent {
	i := slices.IndexFunc(p.Agents, func(a *Agent) bool { return a.VariantOf == agent && a.TestName == name })
	if i < 0 {
		return nil
	}
	return p.Agents[i]
}

// BaseName returns the base of a variant. For any other agent it returns the agent itself.
func (p *Project) BaseName(agent string) string {
	if a := p.byName[agent]; a != nil && a.VariantOf != "" {
		return a.VariantOf
	}
	return agent
}

// linkVariants links each A/B variant to its base: the agent in the same folder whose file name is the part before the
// mark.
func (p *repoParser) linkVariants() {
	byFile := make(map[string]*Agent, len(p.project.Agents))
	for _, a := range p.project.Agents {
		byFile[a.SourcePath] = a
		maps.DeleteFunc(a.Variants, func(name string, _ int) bool { return !a.source.isWritten("variants", name) })
	}
	for _, a := range p.project.Agents {
		if file, variant, ok := variantFile(a.SourcePath); ok {
			p.linkVariant(a, byFile[file], file, variant)
		} else if a.source.isWritten("variants") {
			p.checkShares(a, byFile)
		}
	}
}

// linkVariant links a variant to its base. The base is nil if its file does not exist.
func (p *repoParser) linkVariant(a, base *Agent, file, variant string) {
	at := Position{File: a.SourcePath}
	if base == nil {
		p.problems.add(at, "has the name of a variant of %s, which does not exist; rename it if it is not a variant", file)
		return
	}
	a.VariantOf, a.TestName = base.Name, variant
	if !agentName.MatchString(variant) || len(variant) > maxName {
		p.problems.add(at, "the name of a variant, which follows %q, must be at most %d lower-case letters, digits and inner dashes", variantMark, maxName)
	} else if _, named := base.Variants[variant]; !named {
		p.problems.add(at, `this variant never runs, because the "variants" of %s do not name it; write variants: {%s: 10} there, or remove this file`,
			file, variant)
	}
	for _, f := range agentFields.ordered {
		if f.baseOnly && a.source.isWritten(f.name) {
			p.problems.add(a.At(f.name), "%q applies to all runs of agent %q; move it to %s", f.name, base.Name, file)
		}
	}
}

// checkShares checks the percentages of an agent's variants.
func (p *repoParser) checkShares(a *Agent, byFile map[string]*Agent) {
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(a.Variants)) {
		at, weight := a.At("variants", name), a.Variants[name]
		file := strings.TrimSuffix(a.SourcePath, ".yaml") + variantMark + name + ".yaml"
		switch {
		case name == baseEntry:
			p.problems.add(at, "the agent itself executes the rest of the runs; remove the entry %q", name)
		case byFile[file] == nil:
			p.problems.add(at, "variant %q needs the file %s, which does not exist; add it or remove the entry", name, escapePath(file))
		case weight < 0 || weight > 100:
			p.problems.add(at, `"variants.%s" must be a percentage between 0 and 100`, name)
		default:
			sum += weight
		}
	}
	switch {
	case len(a.Variants) == 0:
		p.problems.add(a.At("variants"), `"variants" is empty; remove it`)
	case len(a.Variants) > maxVariants:
		p.problems.add(a.At("variants"), "an agent has at most %d variants", maxVariants)
	case sum > 100:
		p.problems.add(a.At("variants"), `"variants" must add up to at most 100 percent, not %d`, sum)
	}
}
