// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/sha256"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// media is the place and the format of a request's input.
type media int

const (
	mediaJSON media = iota
	mediaForm
	mediaQuery
	mediaMultipart
)

// Input formats.
const (
	typeJSON      = "application/json"
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// mediaOf returns the input format of a request, or an error, by its method and headers. It ignores
// the body of a GET.
func mediaOf(r *http.Request) (media, error) {
	if r.Method == http.MethodGet {
		return mediaQuery, nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return 0, httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedEncoding,
			"The body is compressed; send it without Content-Encoding.")
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
	case kind == typeJSON && httpserver.IsUTF8(parameters["charset"]):
		return mediaJSON, nil
	case kind == typeForm && httpserver.IsUTF8(parameters["charset"]):
		return mediaForm, nil
	case kind == typeMultipart && parameters["boundary"] != "" && httpserver.IsUTF8(parameters["charset"]):
		return mediaMultipart, nil
	case kind == typeJSON, kind == typeForm, kind == typeMultipart && parameters["boundary"] != "":
		return 0, httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia,
			"The charset of the Content-Type is not supported. Send the body in UTF-8.")
	}
	return 0, httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia,
		"Send a POST with a JSON object and the header `Content-Type: application/json`, or a form in UTF-8 as `"+typeForm+"` or `"+typeMultipart+"`; or a GET with a query.")
}

// newUpload starts to read the input. body is the body of a POST.
func (m media) newUpload(r *http.Request, body io.Reader, hashed bool, files *attachments) *bodyUpload {
	u := &bodyUpload{content: formedInput{}, files: files}
	if hashed {
		u.sum = sha256.New()
	}
	if m == mediaQuery {
		u.in, u.hash = newFormReader(strings.NewReader(r.URL.RawQuery), "secret"), u.sum
		return u
	}
	switch m {
	case mediaForm:
		text := newFormReader(body, "")
		text.json = newJSONBody()
		u.in, u.hash = text, u.sum
	case mediaMultipart:
		_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // mediaOf has parsed it
		u.in = newMultipartReader(body, parameters["boundary"], files, u.sum)
	default:
		if hashed {
			body = io.TeeReader(body, u.sum)
		}
		text := newInlineFiles(body, files)
		u.in, u.content = text, text.text
	}
	return u
}

// formInput converts an input into the form to commit. A large form is stored as pairs, because a
// conversion to an object needs all of it in memory.
func (m media) formInput(in *input) (err error) {
	switch {
	case m == mediaJSON || in.repeat:
		in.contentType = typeJSON
	case in.blob != nil:
		in.contentType = fields.ContentType
	default:
		in.contentType = typeJSON
		if in.inline, err = fields.Object(in.inline); err != nil {
			return fmt.Errorf("converting a form to an object: %w", err)
		}
	}
	return nil
}
