// SPDX-License-Identifier: Apache-2.0

package refpage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limit is a row of a table of limits. Its texts take their numbers from the constants that the code
// uses.
type Limit struct {
	// Resource is the limited thing, and Value its limit with a unit.
	Resource, Value string
	// Beyond is the effect of exceeding the limit.
	Beyond string
}

// LimitTable returns a table of limits with a heading for the first column.
func LimitTable(resource string, limits []Limit) string {
	var table strings.Builder
	fmt.Fprintf(&table, "| %s | Limit | Beyond the limit |\n|---|---|---|\n", resource)
	for _, l := range limits {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", l.Resource, l.Value, l.Beyond)
	}
	return table.String()
}

// Bytes returns a number of bytes in the largest unit that divides it: 16 KiB.
func Bytes(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size && n%unit.size == 0 {
			return Count(n/unit.size) + " " + unit.name
		}
	}
	return Count(n) + " bytes"
}

// Count returns a number with a comma between thousands if it has at least five digits: 50,000.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	if len(digits) < 5 {
		return digits
	}
	head := len(digits) % 3
	parts := []string{}
	if head > 0 {
		parts = append(parts, digits[:head])
	}
	for ; head < len(digits); head += 3 {
		parts = append(parts, digits[head:head+3])
	}
	return strings.Join(parts, ",")
}

// Time returns a time in seconds, or in milliseconds if it is shorter.
func Time(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Seconds())
}

// Part returns the name of one of n equal parts: a quarter.
func Part(n int64) string {
	names := map[int64]string{2: "half", 4: "a quarter", 8: "an eighth"}
	if name, known := names[n]; known {
		return name
	}
	return "1/" + Count(n)
}
