// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"slices"
	"strings"
)

// wildcard ends a reference to several tools.
const wildcard = "*"

// HTTPTools returns the HTTP tools that a reference names, in the order of their references: one tool, or all
// of a file for orders.*, or the operations of a document whose names have a prefix for api:shop.get*. It returns nil if no HTTP tool has the reference.
func (p *Project) HTTPTools(reference string) []*HTTPTool {
	prefix, isWildcard := strings.CutSuffix(reference, wildcard)
	if !isWildcard {
		if t := p.httpTools[reference]; t != nil {
			return []*HTTPTool{t}
		}
		return nil
	}
	var out []*HTTPTool
	for _, known := range slices.Sorted(maps.Keys(p.httpTools)) {
		name, matches := strings.CutPrefix(known, prefix)
		if matches && (strings.HasPrefix(known, apiPrefix) || !strings.Contains(name, ".")) {
			out = append(out, p.httpTools[known])
		}
	}
	return out
}

// codeReferences returns the references of the HTTP tools and the functions of scripts that a reference of an agent names.
func (p *Project) codeReferences(reference string) (references []string) {
	for _, t := range p.HTTPTools(reference) {
		references = append(references, t.Reference)
	}
	return append(references, p.scriptReferences(reference)...)
}
