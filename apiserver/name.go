// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"reflect"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
)

// Name is a name for people in a request. The white space around it is left out.
type Name string

// Resolve implements huma.ResolverWithPath.
func (n *Name) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	if *n == "" {
		return nil // its length says so, where it is required
	}
	*n = Name(strings.TrimSpace(string(*n)))
	message := ""
	switch {
	case *n == "":
		message = "must not be blank"
	case strings.ContainsFunc(string(*n), isControl):
		message = "must not have control characters, line breaks or characters that change the direction of text"
	default:
		return nil
	}
	return []error{&huma.ErrorDetail{Location: at.String(), Message: message}}
}

// Schema describes the type.
func (Name) Schema(huma.Registry) *huma.Schema {
	return huma.SchemaFromType(nil, reflect.TypeFor[string]())
}

// isControl says whether a character changes how others are shown, instead of being shown: it is a
// control character, separates lines or paragraphs, or changes the direction of text.
func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || r == '\uFEFF'
}

// compareNames orders names as people do, without regard to case; names that differ in case alone
// have an order too.
func compareNames(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}
