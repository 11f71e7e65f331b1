// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

// listedRuns sets the size of Lists. hack/bench.sh passes it on.
var listedRuns = flag.Int("listed.runs", 200_000, "stored runs of the project of BenchmarkLists")

// listTarget is the target of the median time of a list, in milliseconds.
const listTarget = 50

// indexedSearches are the searches whose terms are in the index. Another search reads runs until it has used up its time.
var indexedSearches = []string{
	"search/a rare word", "search/a word that all have", "search/a word that none has", "search/two that never meet", "search/a field",
}

// BenchmarkLists measures the lists and the indexed searches of a project that has all stored runs.
func BenchmarkLists(b *testing.B) {
	engines(b, func(b *testing.B, db *database) {
		p := populate(b, db, 1, *listedRuns)
		calls, searches := map[string]call{}, p.searches()
		for _, name := range indexedSearches {
			calls[name] = searches[name]
		}
		for name, do := range p.reads() {
			if !strings.HasPrefix(name, "statistics/") && name != "runs/of the smallest" { // the only project is the smallest too
				calls[name] = call{do: do}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			took := p.measureTimes(b, name, calls[name])
			print(b, Cost("lists/"+p.name+"/"+name+"/p50", "ms", Percentile(took, 0.5), listTarget, 1),
				Cost("lists/"+p.name+"/"+name+"/p99", "ms", Percentile(took, 0.99), listTarget, 0))
		}
	})
}
