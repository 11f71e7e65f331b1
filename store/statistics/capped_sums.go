// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/store"
)

// summedColumns are the columns of cost and tokens, in scan order.
var summedColumns = []string{"cost_nanos", "input_tokens", "output_tokens", "thinking_tokens", "cached_input_tokens", "total_tokens"}

// halfBits is the number of lower bits that are added separately.
const halfBits = 30

// sumColumns returns the sums of these columns of a table, each at most store.MaxSum. Numbers are added
// in halves: the sum of the upper halves shows an overflow before it happens. The built-in sums
// fail or return a floating-point number.
func sumColumns(table string) string {
	sums := make([]string, len(summedColumns))
	for i, name := range summedColumns {
		bits, of := strconv.Itoa(halfBits), table+"."+name
		upper := `SUM(` + of + ` >> ` + bits + `)`
		sums[i] = `CAST(CASE WHEN ` + upper + ` >= ` + strconv.Itoa(store.MaxSum>>halfBits) + ` THEN ` + strconv.Itoa(store.MaxSum) + `
			ELSE ` + upper + ` * ` + strconv.Itoa(1<<halfBits) + ` + SUM(` + of + ` & ` + strconv.Itoa(1<<halfBits-1) + `) END AS bigint)`
	}
	return strings.Join(sums, ", ")
}

// addToSums adds to the columns of an existing row, each up to store.MaxSum.
func addToSums(table string) string {
	sets := make([]string, len(summedColumns))
	for i, name := range summedColumns {
		sum, most := table+"."+name+" + excluded."+name, strconv.Itoa(store.MaxSum)
		sets[i] = name + ` = CASE WHEN ` + sum + ` > ` + most + ` THEN ` + most + ` ELSE ` + sum + ` END`
	}
	return strings.Join(sets, ", ")
}
