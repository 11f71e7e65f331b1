// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
)

// defaultsFile folds into every agent at and below its folder.
const defaultsFile = "_defaults.yaml"

// fold lays own over base: maps merge key by key, lists add what base lacks,
// everything else replaces. A null in own removes what base says.
func fold(base, own *node) *node {
	switch {
	case base == nil:
		return own
	case own == nil:
		return base
	case base.kind != own.kind || own.kind == kindScalar:
		return own
	case own.kind == kindList:
		return foldLists(base, own)
	}
	out := &node{pos: own.pos, kind: kindMap, weight: base.weight + own.weight}
	for _, e := range base.entries {
		if mine := own.get(e.key); mine != nil {
			out.entries = append(out.entries, entry{key: e.key, pos: mine.pos, value: fold(e.value, mine.value)})
			continue
		}
		out.entries = append(out.entries, e)
	}
	for _, e := range own.entries {
		if base.get(e.key) == nil {
			out.entries = append(out.entries, e)
		}
	}
	return out
}

// foldLists is base and then what own has and base does not.
func foldLists(base, own *node) *node {
	out := &node{pos: own.pos, kind: kindList, weight: base.weight + own.weight}
	seen := make(map[string]bool, len(base.items)+len(own.items))
	for _, item := range base.items {
		seen[item.key()] = true
		out.items = append(out.items, item)
	}
	for _, item := range own.items {
		if key := item.key(); !seen[key] {
			seen[key] = true
			out.items = append(out.items, item)
		}
	}
	return out
}

// key is equal for equal values.
func (n *node) key() string {
	data, err := json.Marshal(n.value())
	if err != nil {
		return fmt.Sprintf("%p", n) // Cannot be: values are scalars, lists and maps.
	}
	return string(data)
}

// defaultsOf folds the defaults of a folder and of those above it, outermost
// first; nil without any.
func (p *parsing) defaultsOf(folder string) *node {
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
	folded := fold(above, own)
	if folded != nil && folded.weight > maxNodes {
		p.problems.add(Position{File: file}, "folded defaults have more than %d values", maxNodes)
		folded = nil
	}
	p.defaults[folder] = folded
	return folded
}

// checkDefaults reads a file of defaults and checks its keys, also when no
// agent uses them.
func (p *parsing) checkDefaults(file string, data []byte) *node {
	n := parseYAML(file, data, &p.problems)
	if n == nil {
		return nil
	}
	var scratch Agent
	before := len(p.problems)
	d := p.decoder()
	d.decode(n, &scratch, "")
	if e := n.get("name"); e != nil {
		p.problems.add(e.pos, "defaults cannot hold a name; each agent has its own")
	}
	if e := n.get("variants"); e != nil {
		p.problems.add(e.pos, "defaults cannot hold variants; each agent has its own")
		n.entries = slices.DeleteFunc(n.entries, func(e entry) bool { return e.key == "variants" })
	}
	// A number beyond its bounds is still a default: no agent lacks the others.
	broken := len(p.problems)-before > d.outside
	if e := n.get("type"); e != nil && scratch.Type != "" {
		p.knowsType(scratch.Type, e.pos)
	}
	if broken {
		return nil // Said once, here, and not again for every agent.
	}
	return n
}
