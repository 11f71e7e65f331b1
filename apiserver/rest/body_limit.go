// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// maxBodyValues limits the values of a body in places that a schema describes, which is several times
// the size of the largest valid body. Values in objects of any shape do not count.
const maxBodyValues = 4000

// boundedAPI rejects a body with too many values before huma builds an error for each of them.
type boundedAPI struct {
	huma.API
	method, path string
}

// Unmarshal implements huma.API. huma decodes a body twice, even if the first time fails.
func (b boundedAPI) Unmarshal(contentType string, data []byte, v any) error {
	if countDescribedValues(b.OpenAPI(), b.bodySchema(), data) > maxBodyValues {
		return fmt.Errorf("must have at most %d values; remove items and fields", maxBodyValues)
	}
	return b.API.Unmarshal(contentType, data, v) //nolint:wrapcheck // the text is the message of a field
}

func (b boundedAPI) bodySchema() *huma.Schema {
	op := operationAt(b.OpenAPI(), b.method, b.path)
	if op == nil || op.RequestBody == nil || op.RequestBody.Content[jsonMedia] == nil {
		return nil
	}
	return op.RequestBody.Content[jsonMedia].Schema
}

// countDescribedValues returns the number of values and keys in the described places of a JSON text.
// It stops soon after maxBodyValues.
func countDescribedValues(api *huma.OpenAPI, schema *huma.Schema, data []byte) int {
	c := valueCounter{scanner: jsonscan.New(data), registry: api.Components.Schemas}
	if token, ok := c.scanner.Next(); ok {
		c.visit(token, schema)
	}
	return c.count
}

type valueCounter struct {
	scanner  *jsonscan.Scanner
	registry huma.Registry
	count    int
}

// misplaced is the schema of values in places that have none.
var misplaced = &huma.Schema{Type: huma.TypeString}

// visit reads the value that begins with a token. A value with a nil schema, or a schema without a
// type, can have any shape.
func (c *valueCounter) visit(token jsonscan.Token, schema *huma.Schema) {
	if schema != nil && schema.Ref != "" {
		schema = c.registry.SchemaFromRef(schema.Ref)
	}
	if schema != nil && schema.Type == "" {
		schema = nil
	}
	if schema != nil {
		c.count++
	}
	if token.Kind != jsonscan.OpenObject && token.Kind != jsonscan.OpenList {
		return
	}
	if schema == nil {
		c.skip()
		return
	}
	member := cmp.Or(schema.Items, misplaced)
	for c.count <= maxBodyValues {
		token, ok := c.scanner.Next()
		switch {
		case !ok, token.Kind == jsonscan.CloseObject, token.Kind == jsonscan.CloseList:
			return
		case token.Kind == jsonscan.Key:
			member = c.property(schema, token.Text)
		default:
			c.visit(token, member)
		}
	}
}

// property returns the schema of a property, or nil if the object can have any properties.
func (c *valueCounter) property(schema *huma.Schema, key []byte) *huma.Schema {
	var name string
	if json.Unmarshal(key, &name) == nil && schema.Properties[name] != nil {
		return schema.Properties[name]
	}
	switch others := schema.AdditionalProperties.(type) {
	case *huma.Schema:
		return others
	case bool:
		if others {
			return nil
		}
	}
	return misplaced
}

// skip reads to the end of the open object or list.
func (c *valueCounter) skip() {
	for depth := 1; depth > 0; {
		token, ok := c.scanner.Next()
		switch {
		case !ok:
			return
		case token.Kind == jsonscan.OpenObject, token.Kind == jsonscan.OpenList:
			depth++
		case token.Kind == jsonscan.CloseObject, token.Kind == jsonscan.CloseList:
			depth--
		}
	}
}
