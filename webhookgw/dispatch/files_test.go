// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// TestFiles_OnlyReviewedContent: files beyond the review budget are reported like omitted ones.
func TestFiles_OnlyReviewedContent(t *testing.T) {
	t.Parallel()
	blob := uuid.New()
	wire := wireFiles([]store.File{
		{Name: "a", FieldName: "f", MIMEType: "text/plain", Size: 5, Blob: &blob},
		{Name: "b", FieldName: "f", Reason: store.FileUnsupported},
		{Name: "c", FieldName: "g", MIMEType: "text/plain", Size: 7, Blob: &blob, Reason: store.FileBeyondReview},
	})
	require.Equal(t, dispatchapi.Files{
		Files: []dispatchapi.File{{Name: "a", FieldName: "f", MIMEType: "text/plain", Size: 5}},
		Issues: []dispatchapi.FileIssue{
			{Name: "b", FieldName: "f", Reason: "unsupported_type"}, {Name: "c", FieldName: "g", Reason: "review_budget"},
		},
	}, wire)
}
