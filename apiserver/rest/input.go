// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"
	kjson "sigs.k8s.io/json"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/unsupported"
)

// ID is a UUID in a path or a query, in upper or lower case.
type ID uuid.UUID

// uuidLength is the length of a UUID in this API.
const uuidLength = 36

// idFormat is the format of a UUID in OpenAPI.
const idFormat = "uuid"

// UnmarshalText implements encoding.TextUnmarshaler. It rejects other forms of a UUID, such as braces or no dashes.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := uuid.ParseBytes(text)
	if err != nil || len(text) != uuidLength {
		return errors.New(messageUUID)
	}
	*id = ID(parsed)
	return nil
}

// String returns the UUID in lower case.
func (id ID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether the ID is not set.
func (id ID) IsZero() bool { return uuid.UUID(id) == uuid.Nil }

func (ID) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: idFormat, Examples: []any{"2b1f6c1e-6d0c-4d2a-9a53-6a0b8d9b7f10"}}
}

// Moment is a time in a query. Given tells the zero time from an omitted parameter.
type Moment struct {
	At    time.Time
	Given bool
}

func (m *Moment) UnmarshalText(text []byte) (err error) {
	if m.At, err = time.Parse(time.RFC3339Nano, string(text)); err != nil {
		return errors.New(messageTime)
	}
	if epoch := time.Unix(0, 0); m.At.Before(epoch) { // nothing is older, and the zero time would mean no time
		m.At = epoch
	}
	m.Given = true
	return nil
}

func (Moment) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// nullable are the parameters that count as omitted if they are empty or null.
var nullable = []string{"time_range"}

// leaveOutNull removes nullable parameters that are null from a query.
func leaveOutNull(r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return // checkQuery rejects it
	}
	found := false
	for _, name := range nullable {
		if values := query[name]; len(values) == 1 && (values[0] == "" || values[0] == "null") {
			query.Del(name)
			found = true
		}
	}
	if found {
		r.URL.RawQuery = query.Encode()
	}
}

// checkCharset rejects a JSON body that is not UTF-8.
func checkCharset(contentType string) error {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err == nil && !httpserver.IsUTF8(parameters["charset"]) {
		return NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, "the body must be UTF-8: leave the charset out of Content-Type")
	}
	return nil
}

// checkQuery rejects unknown parameters, empty parameters, and repeated parameters that are not lists, because they
// would have no effect.
func checkQuery(ctx huma.Context) error {
	request, _ := humachi.Unwrap(ctx)
	leaveOutNull(request)
	raw := ctx.URL()
	query, err := url.ParseQuery(raw.RawQuery)
	if err != nil {
		return InvalidField("query", "is malformed: write parameters as name=value, separated by &")
	}
	known, lists, ids := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range ctx.Operation().Parameters {
		ids[p.Name] = p.In == "query" && p.Schema != nil && p.Schema.Format == idFormat
		known[p.Name] = known[p.Name] || p.In == "query"
		lists[p.Name] = p.Explode != nil && *p.Explode
	}
	var fields []FieldError
	for name, values := range query {
		at := FieldError{Location: "query." + name}
		switch {
		case unsupported.Has(unsupported.Query, name, ""):
			at = notSupported(at.Location)
		case !known[name]:
			at.Message = "is not a parameter of this call"
		case len(values) > 1 && !lists[name]:
			at.Message = "must be given once"
		case slices.Contains(values, ""):
			at.Message = "must not be empty: leave it out"
		case ids[name] && slices.Contains(values, uuid.Nil.String()):
			at.Message = "is the nil UUID, which no object has: leave it out"
		default:
			continue
		}
		fields = append(fields, at)
	}
	if len(fields) > 0 {
		return Invalid(fields...)
	}
	return nil
}

// jsonFormat reads request bodies and writes responses.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readJSON}

// byteOrderMark can begin a JSON text and has no meaning.
var byteOrderMark = []byte("\uFEFF")

// readJSON decodes JSON like Kubernetes, with case-sensitive field names. Its errors give the position. It rejects
// repeated fields, because one of the values would have no effect.
func readJSON(data []byte, v any) error {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if err := jsonscan.Check(data); err != nil {
		return fmt.Errorf("the body is not valid JSON: %w", err)
	}
	repeated, err := kjson.UnmarshalStrict(data, v, kjson.DisallowDuplicateFields)
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) && strings.HasPrefix(typed.Value, "number ") {
		repeated, err = kjson.UnmarshalStrict(NormalizeIntegers(data), v, kjson.DisallowDuplicateFields)
	}
	var field kjson.FieldError
	switch {
	case errors.As(err, &typed):
		return errors.New(TypeProblem(typed))
	case err != nil:
		return fmt.Errorf("the body cannot be read: %w", err)
	case len(repeated) > 0 && errors.As(repeated[0], &field):
		return fmt.Errorf("the body has the field %q twice", field.FieldPath())
	}
	return nil
}

// TypeProblem states the JSON type that a field needs.
func TypeProblem(typed *json.UnmarshalTypeError) string {
	of, text := typed.Type, reflect.TypeFor[encoding.TextUnmarshaler]()
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	var needs string
	switch kind := of.Kind(); {
	case kind == reflect.String, reflect.PointerTo(of).Implements(text):
		needs = "a string"
	case kind == reflect.Bool:
		needs = "true or false"
	case kind == reflect.Slice, kind == reflect.Array:
		needs = "a list"
	case kind == reflect.Map, kind == reflect.Struct:
		needs = "an object"
	case kind == reflect.Float64:
		needs = "a number"
	default:
		needs = "an integer"
	}
	return "must be " + needs + ", not a JSON " + typed.Value
}

// jsonNumber matches a number, or a string, so that numbers inside strings do not match.
var jsonNumber = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`)

// NormalizeIntegers writes integers such as 60.0 and 6e1 in a JSON text as digits, because JSON does not distinguish
// them.
func NormalizeIntegers(data []byte) []byte {
	return jsonNumber.ReplaceAllFunc(data, func(token []byte) []byte {
		if token[0] == '"' || !bytes.ContainsAny(token, ".eE") {
			return token
		}
		if plain, ok := plainInteger(string(token)); ok {
			return []byte(plain)
		}
		return token
	})
}

// maxDigits is the most digits of an integer that NormalizeIntegers writes.
const maxDigits = 19

// plainInteger returns a number as an integer of at most maxDigits digits, if it is one.
func plainInteger(text string) (string, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	shift, err := strconv.Atoi(cmp.Or(exponent, "0"))
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	if strings.Trim(digits, "0") == "" {
		return "0", true
	}
	zeros := len(whole) + shift - len(digits)
	if err != nil || zeros < 0 || zeros > maxDigits || len(whole)+shift > maxDigits {
		return "", false
	}
	return sign + cmp.Or(strings.TrimLeft(digits+strings.Repeat("0", zeros), "0"), "0"), true
}
