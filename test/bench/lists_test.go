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

// listLimit is the limit of the median time of a list, in milliseconds.
const listLimit = 50

// BenchmarkLists measures the lists and searches of a project that has all stored runs. A search whose terms are not in the index
// is left out, because it reads runs until it has used up its time.
func BenchmarkLists(b *testing.B) {
	engines(b, func(b *testing.B, db *database) {
		p := populate(b, db, 1, *listedRuns)
		calls := p.searches()
		maps.DeleteFunc(calls, func(name string, _ call) bool { return strings.HasPrefix(name, "search/CEL") })
		for name, do := range p.reads() {
			if !strings.HasPrefix(name, "statistics/") {
				calls[name] = call{do: do}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			took := p.measureTimes(b, name, calls[name])
			print(b, Cost("lists/"+p.name+"/"+name+"/p50", "ms", Percentile(took, 0.5), listLimit, 1),
				Cost("lists/"+p.name+"/"+name+"/p99", "ms", Percentile(took, 0.99), listLimit, 0))
		}
	})
}
