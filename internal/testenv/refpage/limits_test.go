// SPDX-License-Identifier: Apache-2.0

package refpage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A size has the largest unit that divides it, so that the page shows exact numbers.
func TestBytes_UsesTheLargestUnit(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		n    int64
		want string
	}{
		"mebibytes": {32 << 20, "32 MiB"},
		"kibibytes": {1536 << 10, "1536 KiB"},
		"bytes":     {1000, "1000 bytes"},
		"thousands": {1<<20 + 1, "1,048,577 bytes"},
		"zero":      {0, "0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, Bytes(row.n))
		})
	}
}

func TestCount_SeparatesThousands(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		n    int64
		want string
	}{
		"four digits": {8192, "8192"},
		"five digits": {50_000, "50,000"},
		"six digits":  {100_000, "100,000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, Count(row.n))
		})
	}
}

func TestTime_HasSecondsOrMilliseconds(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "60 s", Time(time.Minute))
	assert.Equal(t, "250 ms", Time(250*time.Millisecond))
}

func TestReplacePart_KeepsTheRestOfThePage(t *testing.T) {
	t.Parallel()
	page := "# Page\n\n" + beginPart("a") + "\nold\n\n" + endPart("a") + "\n\nrest\n"
	replaced, found := replacePart(page, "a", "new\n")
	assert.True(t, found)
	assert.Equal(t, "# Page\n\n"+beginPart("a")+"\nnew\n\n"+endPart("a")+"\n\nrest\n", replaced)
	_, found = replacePart(page, "b", "new\n")
	assert.False(t, found, "a part without its marks is an error")
}
