// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// content says why a body is no input, while it comes in: whatever it is, judging
// it takes no memory that grows with it.
type content struct {
	text   *jsonscan.Stream
	failed bool
	depth  int
	object bool // the body is an object
	// attached: an object has attachments, which would reach the model as text:
	// objects with `data` in a list `files`, by every field of that name, however
	// it is escaped.
	attached bool

	files bool // the last field of the body is `files`
	list  bool // the last list or object that is a field of the body is a list `files`
	file  bool // the last list or object in one of those is an object in such a list
}

func newContent() *content {
	c := &content{}
	c.text = jsonscan.NewStream(c.see)
	return c
}

// Write takes the next piece. It never fails: a body is read on, for what else may
// be wrong with it.
func (c *content) Write(piece []byte) (int, error) {
	if _, err := c.text.Write(piece); err != nil {
		c.failed = true
	}
	return len(piece), nil
}

// refused says whether the body will be refused, whatever comes yet. It has begun.
func (c *content) refused() bool { return c.failed || c.attached || c.depth > 0 && !c.object }

// problem says at the end of the body why it is no input.
func (c *content) problem() error {
	switch {
	case c.text.Close() != nil:
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidJSON, "The body is not valid JSON.")
	case !c.object:
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidJSON, "The body is valid JSON but not an object; send fields in {…}.")
	case c.attached:
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeFilesNotSupported,
			"The objects in `files` hold `data`: this release takes no attachments. Send the event without them.")
	}
	return nil
}

// see takes the next token.
func (c *content) see(token jsonscan.Token) {
	switch token.Kind {
	case jsonscan.Key:
		if c.depth == 1 {
			c.files = token.Is("files")
		}
		c.attached = c.attached || c.depth == 3 && c.file && token.Is("data")
	case jsonscan.OpenObject, jsonscan.OpenList:
		switch c.depth {
		case 0:
			c.object = token.Kind == jsonscan.OpenObject
		case 1:
			c.list = c.files && token.Kind == jsonscan.OpenList
		case 2:
			c.file = c.list && token.Kind == jsonscan.OpenObject
		}
		c.depth++
	case jsonscan.CloseObject, jsonscan.CloseList:
		c.depth--
	case jsonscan.Scalar:
	}
}
