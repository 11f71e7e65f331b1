// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/store"
)

const typeJSON = "application/json"

// readBody reads and checks the body of a request that was admitted; release
// gives up a large one's place. Problems are errors of the caller's, or say that
// there is no place.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	release = func() {}
	if err := mediaProblem(r); err != nil {
		return nil, release, err
	}
	var (
		in  = http.MaxBytesReader(w, r.Body, MaxBody)
		buf bytes.Buffer
	)
	buf.Grow(int(min(max(r.ContentLength, 0), store.MaxInlineInput)) + bytes.MinRead)
	_, err = io.CopyN(&buf, in, store.MaxInlineInput+1)
	if err == nil { // there is more
		if !h.bodies.TryAcquire(1) {
			return nil, release, errNoPlace
		}
		release = func() { h.bodies.Release(1) }
		buf.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
		_, err = buf.ReadFrom(in)
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, release, errTooLarge
	case err != nil && !errors.Is(err, io.EOF):
		return nil, release, httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeBodyUnreadable, "The body could not be read whole; send the request again.")
	}
	httpserver.BodyRead(w)
	return buf.Bytes(), release, contentProblem(buf.Bytes())
}

var (
	errTooLarge = httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLarge)
	errNoPlace  = httpserver.Problem{
		Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Code: httpserver.CodeTooManyLargeBodies,
		Detail:     "The gateway holds as many large bodies as it has memory for. Send the request again.",
		RetryAfter: retryAfter,
	}
)

// mediaProblem says what is wrong with the form of the body, by its headers.
func mediaProblem(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedEncoding,
			"The body is compressed; send it without Content-Encoding.")
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || err != nil || kind != typeJSON {
		return httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia,
			"Send a POST with a JSON object and the header `Content-Type: application/json`.")
	}
	return nil
}

// contentProblem says why body is no input.
func contentProblem(body []byte) error {
	if !json.Valid(body) {
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidJSON, "The body is not valid JSON.")
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); trimmed[0] != '{' {
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidJSON, "The body is valid JSON but not an object; send fields in {…}.")
	}
	if hasInlineFiles(body) {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeFilesNotSupported,
			"The objects in `files` hold `data`: this release takes no attachments. Send the event without them.")
	}
	return nil
}

// hasInlineFiles says whether an object has attachments: objects with `data` in
// a list `files`. They would reach the model as text. It looks at every field of
// that name, however it is escaped, and takes no memory whatever the body is.
func hasInlineFiles(body []byte) bool {
	var (
		depth int
		files bool // the last field of the body is `files`
		list  bool // the last list or object that is a field of the body is a list `files`
		file  bool // the last list or object in one of those is an object in such a list
	)
	for s := jsonscan.New(body); ; {
		token, ok := s.Next()
		if !ok {
			return false
		}
		switch token.Kind {
		case jsonscan.Key:
			if depth == 1 {
				files = token.Is("files")
			}
			if depth == 3 && file && token.Is("data") {
				return true
			}
		case jsonscan.OpenObject, jsonscan.OpenList:
			switch depth {
			case 1:
				list = files && token.Kind == jsonscan.OpenList
			case 2:
				file = list && token.Kind == jsonscan.OpenObject
			}
			depth++
		case jsonscan.CloseObject, jsonscan.CloseList:
			depth--
		case jsonscan.Scalar:
		}
	}
}
