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

// media says where the input of a request stands, and how.
type media int

const (
	mediaJSON media = iota
	mediaForm
	mediaQuery
	mediaMultipart
)

// Types of bodies.
const (
	typeJSON      = "application/json"
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// mediaOf says how a request is to be read, or what is wrong with it, by its method and
// headers. The body of a GET is not looked at.
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

// upload begins to read the input; body is that of a POST.
func (m media) upload(r *http.Request, body io.Reader, hashed bool, files *attachments) *upload {
	u := &upload{content: formed{}, files: files}
	if hashed {
		u.sum = sha256.New()
	}
	if m == mediaQuery {
		u.in, u.hash = newForm(strings.NewReader(r.URL.RawQuery), "secret"), u.sum
		return u
	}
	switch m {
	case mediaForm:
		text := newForm(body, "")
		text.json = newJSONBody()
		u.in, u.hash = text, u.sum
	case mediaMultipart:
		_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // which mediaOf has read
		u.in = newParts(body, parameters["boundary"], files, u.sum)
	default:
		if hashed {
			body = io.TeeReader(body, u.sum)
		}
		text := newInline(body, files)
		u.in, u.content = text, text.text
	}
	return u
}

// form makes of an input that was read what is committed. A large form stays pairs:
// making an object of it takes all of it.
func (m media) form(in *input) (err error) {
	switch {
	case m == mediaJSON || in.repeat:
		in.contentType = typeJSON
	case in.blob != nil:
		in.contentType = fields.ContentType
	default:
		in.contentType = typeJSON
		if in.inline, err = fields.Object(in.inline); err != nil {
			return fmt.Errorf("making an object of a form: %w", err)
		}
	}
	return nil
}
