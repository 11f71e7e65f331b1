// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// contentScanner checks a body while it arrives, and records why it is no valid input. Its memory does not
// grow with the body.
type contentScanner struct {
	text   *jsonscan.Stream
	failed bool
	depth  int
	object bool // the body is an object
	// ended is called for each element of a list `files`, for every field of that name in any
	// escaping. The argument is nil for an element that is no object. Elements with `data` are
	// attachments.
	ended func(*element)
	// wanted is the meaning of the next value in an element.
	wanted value
	file   *element // the object in such a list that is being read
	own    element

	files bool // the last field of the body is `files`
	list  bool // the last list or object in a field of the body is a list `files`
}

// element is an object in a list `files`.
type element struct {
	number         int // index among the attachments; -1 without data
	name, declared string
}

// value is a field of an element.
type value int

const (
	nothing value = iota
	fileName
	fileType
	fileData
)

// fieldOf returns the meaning of a key of an element.
func (e *element) fieldOf(key jsonscan.Token) value {
	switch {
	case e == nil:
	case key.Is("name"):
		return fileName
	case key.Is("mime_type"):
		return fileType
	case key.Is("data") && e.number < 0:
		return fileData
	}
	return nothing
}

func newContentScanner() *contentScanner {
	c := &contentScanner{ended: func(*element) {}}
	c.text = jsonscan.NewStream(c.observeToken)
	return c
}

// reset prepares content for another body.
func (c *contentScanner) reset() {
	c.text.Reset()
	*c = contentScanner{text: c.text, ended: func(*element) {}}
}

// Write reads the next part of the body. It never fails, so that the body is read to its end and
// other errors are found.
func (c *contentScanner) Write(piece []byte) (int, error) {
	if _, err := c.text.Write(piece); err != nil {
		c.failed = true
	}
	return len(piece), nil
}

// refused reports whether the body will be rejected in any case. The body has started.
func (c *contentScanner) refused() bool { return c.failed || c.depth > 0 && !c.object }

// problem returns at the end of the body why it is no valid input.
func (c *contentScanner) problem() error {
	empty, wrong := c.text.Empty(), c.text.Close()
	switch {
	case empty:
		return invalidJSON("The body is empty. Send a JSON object, or {} without fields.")
	case wrong != nil:
		return invalidJSON("The body is not valid JSON: " + wrong.Error() + ".")
	case !c.object:
		return invalidJSON("The body is valid JSON but not an object. Send fields in {…}.")
	}
	return nil
}

func invalidJSON(detail string) error {
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidJSON, detail)
}

// observeToken processes the next token.
func (c *contentScanner) observeToken(token jsonscan.Token) {
	switch token.Kind {
	case jsonscan.Key:
		if c.depth == 1 {
			c.files = token.Is("files")
		}
		if c.wanted = nothing; c.depth == 3 {
			c.wanted = c.file.fieldOf(token)
		}
	case jsonscan.OpenObject, jsonscan.OpenList:
		switch c.depth {
		case 0:
			c.object = token.Kind == jsonscan.OpenObject
		case 1:
			c.list = c.files && token.Kind == jsonscan.OpenList
		case 2:
			c.file = nil
			if c.list && token.Kind == jsonscan.OpenObject {
				c.own = element{number: -1}
				c.file = &c.own
			}
		}
		c.depth++
	case jsonscan.CloseObject, jsonscan.CloseList:
		if c.depth--; c.depth == 2 && c.list {
			c.ended(c.file)
			c.file = nil
		}
	case jsonscan.Scalar:
		if c.depth == 2 && c.list {
			c.ended(nil)
		}
	}
}
