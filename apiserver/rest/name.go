// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/internal/displayname"
)

// Name is a name for people in a request. The white space around it is left out.
type Name string

// Resolve implements huma.ResolverWithPath.
func (n *Name) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	if *n == "" {
		return nil // its length says so, where it is required
	}
	*n = Name(strings.TrimSpace(string(*n)))
	message := displayname.Problem(string(*n))
	if message == "" {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: at.String(), Message: message}}
}

// Schema describes the type.
func (Name) Schema(huma.Registry) *huma.Schema {
	return huma.SchemaFromType(nil, reflect.TypeFor[string]())
}

// CompareNames orders names as people do, without regard to case; names that differ in case alone
// have an order too.
func CompareNames(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}
