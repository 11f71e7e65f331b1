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
)

const typeJSON = "application/json"

// readBody reads and checks the body of a request that was admitted. Problems
// are errors of the caller's.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := mediaProblem(r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, httpserver.NewProblem(http.StatusRequestEntityTooLarge, "request_too_large", tooLarge)
	case err != nil:
		return nil, httpserver.NewProblem(http.StatusBadRequest, "body_unreadable", "The body could not be read whole; send the request again.")
	}
	httpserver.BodyRead(w)
	return body, objectProblem(body)
}

// mediaProblem says what is wrong with the form of the body, by its headers.
func mediaProblem(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return httpserver.NewProblem(http.StatusUnsupportedMediaType, "unsupported_encoding",
			"The body is compressed; send it without Content-Encoding.")
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || err != nil || kind != typeJSON {
		return httpserver.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Send a POST with a JSON object and the header `Content-Type: application/json`.")
	}
	return nil
}

// objectProblem says why body is no JSON object.
func objectProblem(body []byte) error {
	if !json.Valid(body) {
		return httpserver.NewProblem(http.StatusBadRequest, "invalid_json", "The body is no valid JSON.")
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); trimmed[0] != '{' {
		return httpserver.NewProblem(http.StatusBadRequest, "invalid_json", "The body is valid JSON but no object; send fields in {…}.")
	}
	return nil
}
