// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/internal/displayname"
)

// Name is a display name in a request. Surrounding white space is removed.
type Name string

// Resolve implements huma.ResolverWithPath.
func (n *Name) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	if *n == "" {
		return nil // the minimum length rejects it if it is required
	}
	*n = Name(strings.TrimSpace(string(*n)))
	message := displayname.Problem(string(*n))
	if message == "" {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: at.String(), Message: message}}
}

func (Name) Schema(huma.Registry) *huma.Schema {
	return huma.SchemaFromType(nil, reflect.TypeFor[string]())
}

// CompareNames orders names without regard to case, and names that differ only in case by their bytes.
func CompareNames(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}
