// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// defaultsFile is the name of a file of defaults, which is merged into each agent at and below its folder.
const defaultsFile = "_defaults.yaml"

// mergeNodes merges own over base: maps merge key by key, lists add the items that base lacks, other values replace. A
// null in own removes the value of base.
func mergeNodes(base, own *node) *node {
	switch {
	case base == nil:
		return own
	case own == nil:
		return base
	case base.kind != own.kind || own.kind == kindScalar:
		return own
	case own.kind == kindList:
		return mergeLists(base, own)
	}
	out := &node{pos: own.pos, kind: kindMap, weight: base.weight + own.weight}
	for _, e := range base.entries {
		if mine := own.findEntry(e.key); mine != nil {
			out.entries = append(out.entries, entry{key: e.key, pos: mine.pos, value: mergeNodes(e.value, mine.value)})
			continue
		}
		out.entries = append(out.entries, e)
	}
	for _, e := range own.entries {
		if base.findEntry(e.key) == nil {
			out.entries = append(out.entries, e)
		}
	}
	return out
}

// mergeLists returns the items of base, then the items of own that base lacks.
func mergeLists(base, own *node) *node {
	out := &node{pos: own.pos, kind: kindList, weight: base.weight + own.weight}
	seen := make(map[string]bool, len(base.items)+len(own.items))
	for _, item := range base.items {
		seen[item.hash()] = true
		out.items = append(out.items, item)
	}
	for _, item := range own.items {
		if hash := item.hash(); !seen[hash] {
			seen[hash] = true
			out.items = append(out.items, item)
		}
	}
	return out
}

// hash returns a text that is equal for equal values.
func (n *node) hash() string {
	data, err := json.Marshal(n.toValue())
	if err != nil {
		return fmt.Sprintf("%p", n) // Impossible: values are scalars, lists and maps.
	}
	return string(data)
}

// defaultsOf merges the defaults of a folder and of the folders above it, the outermost first. It returns nil without any.
func (p *repoParser) defaultsOf(folder string) *node {
	if known, ok := p.defaults[folder]; ok {
		return known
	}
	var above *node
	if folder != "agents" {
		above = p.defaultsOf(path.Dir(folder))
	}
	file := path.Join(folder, defaultsFile)
	var own *node
	if data, ok := p.files[file]; ok {
		own = p.checkDefaults(file, data)
	}
	folded := mergeNodes(above, own)
	if folded != nil && folded.weight > maxNodes {
		p.problems.add(Position{File: file}, "the defaults of this folder and the folders above it have more than %d values together", maxNodes)
		folded = nil
	}
	p.defaults[folder] = folded
	return folded
}

// checkDefaults reads a file of defaults and checks its keys, also if no agent uses them.
func (p *repoParser) checkDefaults(file string, data []byte) *node {
	n := parseYAML(file, data, &p.problems)
	if n == nil {
		return nil
	}
	var scratch Agent
	d := p.decoder()
	d.partial = true
	d.decode(n, &scratch, "")
	for _, f := range agentFields.ordered {
		if e := n.findEntry(f.name); e != nil && f.noDefault {
			d.report(e.pos, "defaults cannot have %q; each agent has its own", f.name)
		}
	}
	if d.reported > d.rejected {
		return nil // Reported once here, and not again for each agent.
	}
	return n // A default that breaks a tag is still a default: agents do not lack the others.
}

// withDefaults merges defaults into an agent, without keys that the agent's type does not have or that the file of an A/B
// variant cannot have: one file of defaults serves agents of several types. It keeps all keys for an unknown type, because
// the type is reported then.
func withDefaults(base, own *node) *node {
	out := mergeNodes(base, own)
	_, _, isVariant := variantFile(own.pos.File)
	typeName := agentFields.typeOf(out)
	out.entries = slices.DeleteFunc(out.entries, func(e entry) bool {
		f := agentFields.byName[e.key]
		if f == nil || e.pos.File == own.pos.File {
			return false
		}
		return isVariant && f.baseOnly || !f.isForType(typeName)
	})
	return out
}

// linkDefaults reports defaults without effect: no agent at or below their folder has a type with the key.
func (p *repoParser) linkDefaults() {
	if len(p.problems) > 0 {
		return // An agent with a problem may be the one that uses them.
	}
	present := map[string][]string{} // types of the agents at and below a folder
	for _, a := range p.project.Agents {
		for folder := path.Dir(a.SourcePath); folder != "."; folder = path.Dir(folder) {
			if !slices.Contains(present[folder], string(a.Type)) {
				present[folder] = append(present[folder], string(a.Type))
			}
		}
	}
	for folder, folded := range p.defaults {
		if folded == nil {
			continue
		}
		for _, e := range folded.entries {
			f := agentFields.byName[e.key]
			if path.Dir(e.pos.File) == folder && !e.value.isNull() && !slices.ContainsFunc(present[folder], f.isForType) {
				p.problems.add(e.pos, "%s", agentFields.unusedDefaultMessage(f, folder))
			}
		}
	}
}

// unusedDefaultMessage returns the problem of a default whose folder has no agent of a fitting type.
func (s *structFields) unusedDefaultMessage(f *field, folder string) string {
	if !s.isSupported(f) {
		return unsupportedMessage(f.name)
	}
	return fmt.Sprintf("%q has no effect: %s has no agent of type %s; remove it", f.name, folder, strings.Join(s.supportedTypes(f), " or "))
}
