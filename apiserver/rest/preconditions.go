// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// tagger is a Kubernetes object as far as its ETag needs it.
type tagger interface {
	GetUID() types.UID
	GetGeneration() int64
}

// ETag identifies a version of an object. It changes with the spec and if the object is
// re-created.
func ETag(o tagger) string { return fmt.Sprintf(`"%s.%d"`, o.GetUID(), o.GetGeneration()) }

// entityTags is the form of If-Match.
var entityTags = regexp.MustCompile(`^(\*|(W/)?"[^"]*"(\s*,\s*(W/)?"[^"]*")*)$`)

// readHeaders reads and checks Idempotency-Key and If-Match.
func (c *Caller) readHeaders(ctx huma.Context, e *Endpoint) error {
	c.Endpoint = e
	if e.Effect == EffectNone {
		return nil
	}
	sent := 0
	ctx.EachHeader(func(name, _ string) {
		if http.CanonicalHeaderKey(name) == "Idempotency-Key" {
			sent++
		}
	})
	c.IdempotencyKey, c.ifMatch = ctx.Header("Idempotency-Key"), strings.TrimSpace(ctx.Header("If-Match"))
	switch {
	case sent > 1, sent == 1 && c.IdempotencyKey == "":
		return InvalidField("header.Idempotency-Key", "must be sent once and must not be empty")
	case c.ifMatch != "" && e.Effect == EffectCreate:
		return InvalidField("header.If-Match", "is not allowed for a call that creates an object")
	case c.ifMatch != "" && e.Effect == EffectAction:
		return InvalidField("header.If-Match", "is not allowed: this object has no ETag")
	case c.ifMatch != "" && !entityTags.MatchString(c.ifMatch):
		return InvalidField("header.If-Match", "must be an ETag from a response, in quotes, or *")
	case len(c.IdempotencyKey) > MaxIdempotencyKey:
		return InvalidField("header.Idempotency-Key", fmt.Sprintf("must have at most %d characters", MaxIdempotencyKey))
	}
	return nil
}

// CheckMatch returns 412 if the object is not a version in If-Match.
func (c *Caller) CheckMatch(o tagger) error {
	if c.ifMatch == "" || c.ifMatch == "*" {
		return nil
	}
	for tag := range strings.SplitSeq(c.ifMatch, ",") {
		if strings.TrimSpace(tag) == ETag(o) {
			return nil
		}
	}
	return NewProblem(http.StatusPreconditionFailed, httpserver.CodePrecondition,
		"the object has changed since the response with this ETag; read it again")
}

// headerParameters describe the headers that readHeaders reads.
func headerParameters(does Effect) []*huma.Param {
	if does == EffectNone {
		return nil
	}
	least, most := 1, MaxIdempotencyKey
	about := "Makes the call safe to repeat: the call takes effect once, and a repetition completes an interrupted call."
	if does == EffectCreate {
		about += " Another request with the same key returns 422. If the created object has been deleted, a repetition creates it " +
			"again with its old ID: use a new key for each new object."
	}
	params := []*huma.Param{{
		Name: "Idempotency-Key", In: "header", Description: about,
		Schema: &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Examples: []any{"order-4711"}},
	}}
	if does == EffectUpdate {
		params = append(params, &huma.Param{
			Name: "If-Match", In: "header",
			Description: "The ETag of the response that the call is based on. If the object has changed since, the call returns 412 and does nothing.",
			Schema:      &huma.Schema{Type: huma.TypeString, Examples: []any{`"0b7e6a1c-4f9d-4c55-8d5e-2a6f1c3b9e77.3"`}},
		})
	}
	return params
}
