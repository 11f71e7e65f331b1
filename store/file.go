// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"
)

// MaxFiles is the maximum number of accepted files per input. MaxNamedFiles is the maximum number
// of accepted and omitted files.
const (
	MaxFiles      = 10
	MaxNamedFiles = 100
)

// MaxFileName is the maximum size of a file name and of a field name in bytes.
const MaxFileName = 255

// FileReason is the reason for omitting a file.
type FileReason string

// Reasons for omitting files.
const (
	FileUnsupported     FileReason = "unsupported_type"
	FileTooLarge        FileReason = "file_too_large"
	FilesTooLarge       FileReason = "total_too_large"
	FilesTooMany        FileReason = "too_many_files"
	FileInvalidEncoding FileReason = "invalid_encoding"
	// FileBeyondReview is the reason of a file that is stored but whose content is not given to
	// agents: see ReviewFiles.
	FileBeyondReview FileReason = "review_budget"
)

// DefaultReviewBudget is the default number of bytes of files that agents get per event: the
// maximum that an event can have. Each request to a model carries the files in base64. The
// strictest large provider accepts 20 MB, so 6 MB remain for the rest of the request.
const DefaultReviewBudget = 10 << 20

// File is an attachment of an input. An accepted file has a blob, an omitted file has a reason.
type File struct {
	// Name is the original file name. FieldName is the name of the form field.
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	// MIMEType and Size (in bytes) are set for an accepted file.
	MIMEType string `json:"mime_type,omitempty"`
	Size     int64  `json:"size,omitempty"`
	// Blob is nil for an omitted file, which has a Reason. A file with both is stored, but its
	// content is not given to agents.
	Blob   *uuid.UUID `json:"blob,omitempty"`
	Reason FileReason `json:"reason,omitempty"`
}

// SplitFiles returns the accepted and the omitted files, in their order.
func SplitFiles(files []File) (accepted, omitted []File) {
	for _, f := range files {
		if f.Blob != nil {
			accepted = append(accepted, f)
		} else {
			omitted = append(omitted, f)
		}
	}
	return accepted, omitted
}

// ReviewFiles omits the content of accepted files beyond the budget: from the first file that
// exceeds it together with the files before. The remaining files keep their numbers. It is called
// once, before the event is recorded, and holds for all attempts of the runs and for replays.
func ReviewFiles(files []File, budget int64) {
	var size int64
	for i := range files {
		if f := &files[i]; f.Blob != nil {
			if size += f.Size; size > budget {
				f.Reason = FileBeyondReview
			}
		}
	}
}

// GivenFiles returns the files that agents get.
func GivenFiles(files []File) []File {
	return filesWhere(files, func(f File) bool { return f.Reason == "" })
}

// FileIssues returns the files that agents do not get: omitted ones, and files beyond the review
// budget.
func FileIssues(files []File) []File {
	return filesWhere(files, func(f File) bool { return f.Reason != "" })
}

func filesWhere(files []File, is func(File) bool) (out []File) {
	for _, f := range files {
		if is(f) {
			out = append(out, f)
		}
	}
	return out
}

// MissingFiles returns why an event with these files does not satisfy a link or connector that requires files; "" if it does.
func MissingFiles(files []File) string {
	switch issues := FileIssues(files); {
	case len(issues) > 0:
		return fmt.Sprintf("files are required, but %d of %d were omitted; the first is %q, for %s",
			len(issues), len(files), issues[0].Name, issues[0].Reason)
	case len(files) == 0:
		return "files are required, but the event has none"
	}
	return ""
}

// Files reads the attachments of inputs.
type Files interface {
	// EventFiles returns the files of a connector run's event, accepted and omitted, in the order
	// of arrival. It returns none if there is no such event.
	EventFiles(ctx context.Context, connectorRun Key) ([]File, error)
	// RunFiles returns the files of a run's input in the same way; ErrNotFound without the run.
	RunFiles(ctx context.Context, run Key) ([]File, error)
	// OpenRunFile opens the accepted file with a number, from 0, of a run; ErrNotFound if there is
	// none.
	OpenRunFile(ctx context.Context, run Key, number int) (File, io.ReadCloser, error)
}
