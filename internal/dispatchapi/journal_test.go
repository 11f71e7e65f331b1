// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The limit counts bytes, regardless of the entries. A truncated journal is an error.
func TestReadJournal_LimitsBytes(t *testing.T) {
	t.Parallel()
	const line = `{"sequence":1,"kind":"x","data":{}}` + "\n"
	for name, c := range map[string]struct {
		text string
		want string // "" if it is read
	}{
		"as much as may be": {strings.Repeat(line, 10), ""},
		"one more":          {strings.Repeat(line, 11), "larger than"},
		"one long line":     {`{"data":"` + strings.Repeat("x", 20*len(line)), "larger than"},
		"cut off":           {strings.TrimSuffix(strings.Repeat(line, 3), "}\n"), "unexpected EOF"},
		"no JSON":           {"<html>", "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := readEntries(strings.NewReader(c.text), int64(10*len(line)))
			if c.want == "" {
				require.NoError(t, err)
				require.Len(t, entries, 10)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := readEntries(strings.NewReader(strings.Repeat(line, 11)), int64(10*len(line)))
	require.ErrorIs(t, err, ErrRejected)
}
