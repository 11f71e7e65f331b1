// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"
)

// MaxFiles is the most files that are accepted with an input, MaxNamedFiles the most that are
// named with it, whether accepted or omitted.
const (
	MaxFiles      = 10
	MaxNamedFiles = 100
)

// MaxFileName is the most bytes of the name of a file, and of its field.
const MaxFileName = 255

// RunErrorFilesRequired: an event has no file, or one that was omitted, and the run needs them.
const RunErrorFilesRequired RunErrorCode = "files_required"

// FileReason says why a file was omitted.
type FileReason string

// Reasons.
const (
	FileUnsupported     FileReason = "unsupported_type"
	FileTooLarge        FileReason = "file_too_large"
	FilesTooLarge       FileReason = "total_too_large"
	FilesTooMany        FileReason = "too_many_files"
	FileInvalidEncoding FileReason = "invalid_encoding"
	// FileBeyondReview is of a file that was accepted and is stored, and whose content
	// agents are not given: see ReviewFiles.
	FileBeyondReview FileReason = "review_budget"
)

// DefaultReviewBudget is how many bytes of files agents are given of an event, where the operator
// says nothing else: as many as an event has at most. A request to a model has them in base64,
// each time, which leaves 6 of the 20 MB that the strictest of the large providers takes to
// what is said beside them.
const DefaultReviewBudget = 10 << 20

// File is an attachment of an input: one that was accepted, whose bytes are a blob, or
// one that was omitted, for a reason.
type File struct {
	// Name is the original file name, FieldName that of the field in which it came.
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	// MIMEType and Size, in bytes, are of an accepted file.
	MIMEType string `json:"mime_type,omitempty"`
	Size     int64  `json:"size,omitempty"`
	// Blob is nil of an omitted file, which has a Reason. One that has both is stored, and
	// its content is omitted from what agents are given.
	Blob   *uuid.UUID `json:"blob,omitempty"`
	Reason FileReason `json:"reason,omitempty"`
}

// SplitFiles are the accepted ones among files, and those that were omitted, in their order.
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

// ReviewFiles omits the content of accepted files from what agents are given, from the first on
// with which those before have more bytes than the budget: so those that are given have the
// same numbers as among all accepted ones. It is asked once, before an event is recorded, and
// holds for all attempts of its runs, and for replays.
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

// GivenFiles are the files that agents get.
func GivenFiles(files []File) []File {
	return filesWhere(files, func(f File) bool { return f.Reason == "" })
}

// FileIssues are the files that agents do not get: omitted ones, and those beyond the review.
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

// MissingFiles says why an event with these files does not do for a link that needs files;
// "" where it does.
func MissingFiles(c Connector, link Link, files []File) string {
	if !c.FilesRequired && !link.FilesRequired {
		return ""
	}
	switch issues := FileIssues(files); {
	case len(issues) > 0:
		return fmt.Sprintf("files are required, and %d of %d were omitted: the first, %q, for %s",
			len(issues), len(files), issues[0].Name, issues[0].Reason)
	case len(files) == 0:
		return "files are required, and the event has none"
	}
	return ""
}

// Files are the attachments of inputs.
type Files interface {
	// EventFiles are the files of the event of a connector run, accepted and omitted, in
	// the order in which they came; none where there is no such event.
	EventFiles(ctx context.Context, connectorRun Key) ([]File, error)
	// RunFiles are likewise those of a run's input; ErrNotFound without the run.
	RunFiles(ctx context.Context, run Key) ([]File, error)
	// OpenRunFile reads the accepted file of a number, from 0, of a run; ErrNotFound where
	// it has none.
	OpenRunFile(ctx context.Context, run Key, number int) (File, io.ReadCloser, error)
}
