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
)

// File is an attachment of an input: one that was accepted, whose bytes are a blob, or
// one that was omitted, for a reason.
type File struct {
	// Name is the original file name, FieldName that of the field in which it came.
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	// MIMEType and Size, in bytes, are of an accepted file.
	MIMEType string `json:"mime_type,omitempty"`
	Size     int64  `json:"size,omitempty"`
	// Blob is nil of an omitted file, which has a Reason.
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

// MissingFiles says why an event with these files does not do for a link that needs files;
// "" where it does.
func MissingFiles(c Connector, link Link, files []File) string {
	if !c.FilesRequired && !link.FilesRequired {
		return ""
	}
	switch accepted, omitted := SplitFiles(files); {
	case len(omitted) > 0:
		return fmt.Sprintf("files are required, and %d of %d were omitted", len(omitted), len(files))
	case len(accepted) == 0:
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
