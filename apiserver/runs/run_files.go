// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// MaxFileStreams limits the concurrent downloads, because each holds a chunk of the store in memory, for long if its
	// client is slow. FileShare is the divisor of a project's part.
	MaxFileStreams = 64
	FileShare      = 4
	// fileTime limits a download. 10 MiB at filePace take less time.
	fileTime = 5 * time.Minute
	// filePiece is the number of bytes that are read before the response starts, so that a deleted file returns 404.
	filePiece = 32 << 10
	// fileRetry is the Retry-After if there are too many downloads.
	fileRetry = 5 * time.Second
)

// filePace is the minimum rate of a download.
var filePace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 5 * time.Second}

// RunFilePath names an attachment of a run.
type RunFilePath struct {
	RunPath
	Number int `path:"number" minimum:"0" maximum:"9" doc:"Position of the file in the run's input, from 0." example:"0"`
}

var readRunFile = rest.Handle((*API).readRunFile, rest.Endpoint{
	Method: rest.Get, Path: "/runs/{run_id}/files/{number}", ID: "readRunFile",
	Permissions: rest.Requires("runs.view"), Errors: rest.ReadErrors,
	File:    true,
	Summary: "Download an attachment of an agent run",
	Doc: "Returns the bytes of a file that was accepted with the event of the run. `number` is the position in `files` of the " +
		"run's input, from 0. The content type is detected from the content. The transfer stops if the client reads less than " +
		"64 KiB a second.",
	Example: rest.Example{Path: "/runs/{file_run}/files/0"},
})

// readRunFile streams an attachment.
func (s *API) readRunFile(ctx context.Context, c *rest.Caller, in *RunFilePath) (rest.Response[func(huma.Context)], error) {
	name := "file-" + strconv.Itoa(in.Number)
	return s.downloadFile(ctx, c, in.RunID, name, func(ctx context.Context, run store.Key) (store.File, io.ReadCloser, error) {
		return s.Store.OpenRunFile(ctx, run, in.Number)
	})
}

// SavedFilePath names a file that a run saved.
type SavedFilePath struct {
	RunPath
	FileID string `path:"file_id" minLength:"1" maxLength:"32" pattern:"^[a-z0-9]+$" doc:"ID of the file, from saved_files of the run." example:"s1"`
}

var readSavedFile = rest.Handle((*API).readSavedFile, rest.Endpoint{
	Method: rest.Get, Path: "/runs/{run_id}/saved-files/{file_id}", ID: "readSavedFile",
	Permissions: rest.Requires("runs.view"), Errors: rest.ReadErrors,
	File:    true,
	Summary: "Download a file that an agent run saved",
	Doc: "Returns the bytes of a file in `saved_files` of the run. The content type is the type that the sender of the file declared. " +
		"The transfer stops if the client reads less than 64 KiB a second.",
	Example: rest.Example{Path: "/runs/{run}/saved-files/s1"},
})

// readSavedFile streams a file that a run saved.
func (s *API) readSavedFile(ctx context.Context, c *rest.Caller, in *SavedFilePath) (rest.Response[func(huma.Context)], error) {
	return s.downloadFile(ctx, c, in.RunID, in.FileID, func(ctx context.Context, run store.Key) (store.File, io.ReadCloser, error) {
		file, body, err := s.Store.OpenSavedFile(ctx, run, in.FileID, 0)
		return store.File{Name: file.Name, MIMEType: file.MIMEType, Size: file.Size}, body, err
	})
}

// fileOpener opens a file of a run.
type fileOpener func(ctx context.Context, run store.Key) (store.File, io.ReadCloser, error)

// downloadFile streams a file of a run. filePace and fileTime limit only the transfer. The usual limit of requests applies before
// it. A file whose name cannot be used is downloaded under the given name.
func (s *API) downloadFile(ctx context.Context, c *rest.Caller, id rest.ID, name string, open fileOpener) (rest.Response[func(huma.Context)], error) {
	run, err := s.run(ctx, c, id)
	if err != nil {
		return rest.Response[func(huma.Context)]{}, err
	}
	if err := rest.LimitProblem(s.Files.Take(c.ProjectID, 1), "too many concurrent file downloads; try again", fileRetry); err != nil {
		return rest.Response[func(huma.Context)]{}, err
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileTime)
	done := func() {
		cancel()
		s.Files.Give(c.ProjectID, 1)
	}
	stop := context.AfterFunc(ctx, cancel)
	file, body, err := openFile(within, run.Key(), name, open)
	if err == nil && !stop() {
		err = context.Cause(ctx) // like a failure: nothing can be read any more
	}
	if err != nil {
		done()
		return rest.Response[func(huma.Context)]{}, err
	}
	return rest.Response[func(huma.Context)]{Body: func(ctx huma.Context) {
		defer done()
		defer func() { _ = body.Close() }() // the file was only read
		_, w := humachi.Unwrap(ctx)
		if err := sendFile(w, file, name, body); err != nil { // the client notices the missing bytes by Content-Length
			s.Service.Logger.WarnContext(ctx.Context(), "sending a file of a run", "run", run.ID, "file", name, "error", err)
		}
	}}, nil
}

// openFile opens a file and reads its first bytes, so that a missing file is noticed before the response starts.
func openFile(ctx context.Context, run store.Key, name string, open fileOpener) (store.File, io.ReadCloser, error) {
	file, body, err := open(ctx, run)
	if err != nil {
		return file, nil, missingFile(err, run.ID, name)
	}
	piece := make([]byte, filePiece)
	n, err := io.ReadFull(body, piece)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		_ = body.Close() // the file was only read
		return file, nil, missingFile(err, run.ID, name)
	}
	return file, struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(piece[:n]), body), body}, nil
}

func missingFile(err error, run uuid.UUID, name string) error {
	if errors.Is(err, store.ErrNotFound) {
		return rest.NotFound("file")
	}
	return fmt.Errorf("opening file %s of run %s: %w", name, run, err)
}

// sendFile responds with a file. A browser saves it as a download and never shows it as a page of this origin.
func sendFile(w http.ResponseWriter, file store.File, name string, body io.Reader) error {
	header := w.Header()
	header.Set("Content-Type", file.MIMEType)
	header.Set("Content-Length", strconv.FormatInt(file.Size, 10))
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": downloadName(file.Name, name)}))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	paced := httpserver.NewPacedAnswer(w, filePace)
	defer paced.Done()
	n, err := io.Copy(paced, body)
	if err == nil && n != file.Size {
		err = fmt.Errorf("%d of %d bytes are stored", n, file.Size)
	}
	return err
}

// downloadName returns the name for saving a file: the last part of the sender's name, without invisible characters, or the
// other name.
func downloadName(name, other string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune(`<>:"|?*`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	if name = strings.Trim(name, ". "); name == "" {
		return other
	}
	return name
}

// maxShownInput is the maximum size of an input in a response, in bytes.
const maxShownInput = 1 << 20

// runFile is an accepted attachment in the input of a run. fileIssue is an omitted attachment.
type (
	runFile struct {
		Name      string `json:"name"`
		FieldName string `json:"field_name"`
		MIMEType  string `json:"mime_type"`
		Size      int64  `json:"size"`
	}
	fileIssue struct {
		Name      string           `json:"name"`
		FieldName string           `json:"field_name"`
		Reason    store.FileReason `json:"reason"`
	}
)

// inputWithFiles is an input with its accepted and omitted attachments.
func inputWithFiles(input json.RawMessage, files []store.File) (json.RawMessage, error) {
	accepted, _ := store.SplitFiles(files)
	omitted := store.FileIssues(files)
	shown, issues := make([]runFile, 0, len(accepted)), make([]fileIssue, 0, len(omitted))
	for _, f := range accepted {
		shown = append(shown, runFile{f.Name, f.FieldName, f.MIMEType, f.Size})
	}
	for _, f := range omitted {
		issues = append(issues, fileIssue{f.Name, f.FieldName, f.Reason})
	}
	about := fields.About{Files: shown}
	if len(issues) > 0 {
		about.Issues = issues
	}
	out, err := about.In(input)
	if err != nil {
		return nil, fmt.Errorf("showing files: %w", err)
	}
	return out, nil
}
