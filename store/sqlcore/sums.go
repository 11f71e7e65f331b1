// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/store"
)

// summedColumns are those of a cost and of tokens, in the order in which they are scanned.
var summedColumns = []string{"cost_nanos", "input_tokens", "output_tokens", "thinking_tokens", "cached_input_tokens", "total_tokens"}

// halfBits are the bits of a number that are added up apart from those above.
const halfBits = 30

// sumsOf are the sums of these columns of a table, each store.MaxSum at most. A number goes in by
// halves: the sum of the upper ones says whether it is more, before anything can overflow. No
// engine's own sum does that: one has an error then, and one a number with a fraction.
func sumsOf(table string) string {
	sums := make([]string, len(summedColumns))
	for i, name := range summedColumns {
		bits, of := strconv.Itoa(halfBits), table+"."+name
		upper := `SUM(` + of + ` >> ` + bits + `)`
		sums[i] = `CAST(CASE WHEN ` + upper + ` >= ` + strconv.Itoa(store.MaxSum>>halfBits) + ` THEN ` + strconv.Itoa(store.MaxSum) + `
			ELSE ` + upper + ` * ` + strconv.Itoa(1<<halfBits) + ` + SUM(` + of + ` & ` + strconv.Itoa(1<<halfBits-1) + `) END AS bigint)`
	}
	return strings.Join(sums, ", ")
}

// addsTo adds, where a row is there already, to its columns, each up to store.MaxSum.
func addsTo(table string) string {
	sets := make([]string, len(summedColumns))
	for i, name := range summedColumns {
		sum, most := table+"."+name+" + excluded."+name, strconv.Itoa(store.MaxSum)
		sets[i] = name + ` = CASE WHEN ` + sum + ` > ` + most + ` THEN ` + most + ` ELSE ` + sum + ` END`
	}
	return strings.Join(sets, ", ")
}
