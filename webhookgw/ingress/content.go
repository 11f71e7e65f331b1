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
	// ended is told of each element of a list `files`, by every field of that name,
	// however it is escaped: nil of what is no object. Those with `data` are attachments.
	ended func(*element)
	// wanted is what the next value is of an element.
	wanted value
	file   *element // the object in such a list that is being read
	own    element

	files bool // the last field of the body is `files`
	list  bool // the last list or object that is a field of the body is a list `files`
}

// element is an object in a list `files`.
type element struct {
	number         int // among the attachments; -1 without data
	name, declared string
}

// value is what is wanted of an element.
type value int

const (
	nothing value = iota
	fileName
	fileType
	fileData
)

// wantedOf is what a key of an element stands for.
func (e *element) wantedOf(key jsonscan.Token) value {
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

func newContent() *content {
	c := &content{ended: func(*element) {}}
	c.text = jsonscan.NewStream(c.see)
	return c
}

// reset makes it as a new one.
func (c *content) reset() {
	c.text.Reset()
	*c = content{text: c.text, ended: func(*element) {}}
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
func (c *content) refused() bool { return c.failed || c.depth > 0 && !c.object }

// problem says at the end of the body why it is no input.
func (c *content) problem() error {
	empty, wrong := c.text.Empty(), c.text.Close()
	switch {
	case empty:
		return invalidJSON("The body is empty. Send a JSON object; {} is one without fields.")
	case wrong != nil:
		return invalidJSON("The body is not valid JSON: " + wrong.Error() + ".")
	case !c.object:
		return invalidJSON("The body is valid JSON but not an object; send fields in {…}.")
	}
	return nil
}

func invalidJSON(detail string) error {
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidJSON, detail)
}

// see takes the next token.
func (c *content) see(token jsonscan.Token) {
	switch token.Kind {
	case jsonscan.Key:
		if c.depth == 1 {
			c.files = token.Is("files")
		}
		if c.wanted = nothing; c.depth == 3 {
			c.wanted = c.file.wantedOf(token)
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
