// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"cmp"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"path"

	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Save sends a GET request and returns the body of the response as a file. Without a name the file has the name of the response
// or of the URL. Secrets are redacted in the file, because scripts and models read it. The error is one like that of Send.
func (c *Client) Save(ctx context.Context, r Request, name string) (engine.NewFile, error) {
	if c.transport == nil {
		return engine.NewFile{}, errors.New("HTTP requests are not available here")
	}
	hidden := &redact.Secrets{}
	hidden.Add(r.Secrets...)
	r.Method, r.saves = http.MethodGet, true
	got, err := c.sendScript(ctx, r, hidden)
	if err != nil {
		return engine.NewFile{}, errors.New(oneLine(hidden.RedactText(err.Error()), maxError))
	}
	if got.status >= http.StatusBadRequest {
		return engine.NewFile{}, errors.New(got.forScript(hidden).Failure())
	}
	file := engine.NewFile{
		Name:     hidden.RedactText(cmp.Or(name, got.fileName(), lastPart(r.URL))),
		MIMEType: hidden.RedactText(got.headers["content-type"]), Data: got.data,
	}
	if text := string(got.data); len(r.Secrets) > 0 {
		if redacted := hidden.RedactText(text); redacted != text {
			file.Data = []byte(redacted)
		}
	}
	if file.MIMEType == "" {
		file.MIMEType = http.DetectContentType(file.Data)
	}
	return file, nil
}

// lastPart returns the last part of the path of a URL. The URL of a redirect can be a secret.
func lastPart(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// fileName returns the name that the service gives to the body, or "".
func (got *response) fileName() string {
	_, params, err := mime.ParseMediaType(got.headers["content-disposition"])
	if err != nil {
		return ""
	}
	return params["filename"]
}
