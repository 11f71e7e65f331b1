// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// sized returns accepted files of these sizes. A size of 0 is an omitted file.
func sized(sizes ...int64) (files []store.File) {
	for _, size := range sizes {
		f := store.File{Name: "f", Size: size, Reason: store.FileUnsupported}
		if size > 0 {
			f.Blob, f.Reason = &uuid.UUID{}, ""
		}
		files = append(files, f)
	}
	return files
}

// Agents get accepted files in order, up to the first that exceeds the budget. All files stay
// accepted.
func TestReviewFiles_OmitsBeyondBudget(t *testing.T) {
	t.Parallel()
	const given, omitted, beyond = store.FileReason(""), store.FileUnsupported, store.FileBeyondReview
	for name, c := range map[string]struct {
		sizes []int64
		want  []store.FileReason
	}{
		"none":                          {},
		"the whole budget":              {[]int64{4, 6}, []store.FileReason{given, given}},
		"one byte above":                {[]int64{4, 7}, []store.FileReason{given, beyond}},
		"one file above the budget":     {[]int64{11}, []store.FileReason{beyond}},
		"small files after a large one": {[]int64{4, 7, 1}, []store.FileReason{given, beyond, beyond}},
		"omitted files use no budget":   {[]int64{4, 0, 6, 0, 1}, []store.FileReason{given, omitted, given, omitted, beyond}},
		"omitted files stay omitted":    {[]int64{11, 0}, []store.FileReason{beyond, omitted}},
	} {
		t.Run(name, func(t *testing.T) {
			files := sized(c.sizes...)
			store.ReviewFiles(files, 10)
			accepted, _ := store.SplitFiles(files)
			kept, _ := store.SplitFiles(sized(c.sizes...))
			require.Len(t, accepted, len(kept))
			for i, f := range files {
				require.Equal(t, c.want[i], f.Reason, "%s %d", name, i)
			}
			for i, f := range store.GivenFiles(files) {
				require.Equal(t, accepted[i], f, "given files keep the numbers of accepted files")
			}
			require.Len(t, store.FileIssues(files), len(files)-len(store.GivenFiles(files)))
		})
	}
}

// A file beyond the review budget counts as missing if a link or its connector requires files.
func TestMissingFiles_CountsFilesBeyondReview(t *testing.T) {
	t.Parallel()
	files := sized(4, 7)
	require.Empty(t, store.MissingFiles(files))
	store.ReviewFiles(files, 10)
	require.Contains(t, store.MissingFiles(files), "1 of 2 were omitted")
	require.Contains(t, store.MissingFiles(files), "review_budget")
	require.Equal(t, "files are required, but the event has none", store.MissingFiles(nil))
}
