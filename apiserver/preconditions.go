// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// tagger is an object of Kubernetes, as far as its ETag needs it.
type tagger interface {
	GetUID() types.UID
	GetGeneration() int64
}

// etag names an object and what its spec says: it changes when somebody changes the
// spec, or deletes the object and makes it anew.
func etag(o tagger) string { return fmt.Sprintf(`"%s.%d"`, o.GetUID(), o.GetGeneration()) }

// entityTags is the form of If-Match.
var entityTags = regexp.MustCompile(`^(\*|(W/)?"[^"]*"(\s*,\s*(W/)?"[^"]*")*)$`)

// readHeaders takes in what the request says of repetition and preconditions.
func (c *caller) readHeaders(ctx huma.Context, r *route) error {
	c.route = r
	if r.does == reads {
		return nil
	}
	sent := 0
	ctx.EachHeader(func(name, _ string) {
		if http.CanonicalHeaderKey(name) == "Idempotency-Key" {
			sent++
		}
	})
	c.idempotencyKey, c.ifMatch = ctx.Header("Idempotency-Key"), strings.TrimSpace(ctx.Header("If-Match"))
	switch {
	case sent > 1, sent == 1 && c.idempotencyKey == "":
		return wrong("header.Idempotency-Key", "must be sent once and not be empty")
	case c.ifMatch != "" && r.does == creates:
		return wrong("header.If-Match", "is for calls that change an object: this one creates one")
	case c.ifMatch != "" && r.does == acts:
		return wrong("header.If-Match", "is for what has an ETag: this has none")
	case c.ifMatch != "" && !entityTags.MatchString(c.ifMatch):
		return wrong("header.If-Match", "must be an ETag as an answer gave it, in its quotes, or *")
	case len(c.idempotencyKey) > maxIdempotencyKey:
		return wrong("header.Idempotency-Key", fmt.Sprintf("must have at most %d characters", maxIdempotencyKey))
	}
	return nil
}

// mustMatch answers 412 where the object is not what If-Match names.
func (c *caller) mustMatch(o tagger) error {
	if c.ifMatch == "" || c.ifMatch == "*" {
		return nil
	}
	for tag := range strings.SplitSeq(c.ifMatch, ",") {
		if strings.TrimSpace(tag) == etag(o) {
			return nil
		}
	}
	return problem(http.StatusPreconditionFailed, httpserver.CodePrecondition,
		"somebody has changed this since the answer whose ETag If-Match names; read it again")
}

// headerParameters describe the headers that readHeaders reads.
func headerParameters(does effect) []*huma.Param {
	if does == reads {
		return nil
	}
	least, most := 1, maxIdempotencyKey
	about := "Makes it safe to send the call again: what was done under this key is not done twice, and a repetition completes " +
		"what a failure left half done."
	if does == creates {
		about += " Another request under the same key is answered 422. What was created under it and is deleted since " +
			"is created again, under its old id: use a new key for every new thing."
	}
	params := []*huma.Param{{
		Name: "Idempotency-Key", In: "header", Description: about,
		Schema: &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Examples: []any{"order-4711"}},
	}}
	if does == alters {
		params = append(params, &huma.Param{
			Name: "If-Match", In: "header",
			Description: "The ETag of the answer that the call is based on: where the object has changed since, it is answered 412 and nothing is done.",
			Schema:      &huma.Schema{Type: huma.TypeString, Examples: []any{`"0b7e6a1c-4f9d-4c55-8d5e-2a6f1c3b9e77.3"`}},
		})
	}
	return params
}
