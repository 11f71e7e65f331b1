// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// decoder fills structs from nodes and enforces the tags of their fields. It is strict (unknown keys and other types
// are problems) and continues after a problem, to find all of them at once.
type decoder struct {
	problems *Problems
	// files are the files of the repository, which texts may name.
	files Files
	// patterns counts the instructions of regular expressions.
	patterns *int
	// partial is true for a file of defaults, which may leave out required keys and may have keys of several types.
	partial bool
	// suggestedName is written into the problem of a missing name.
	suggestedName string
	// reported counts all problems. rejected counts the problems of values that have the right type and break a tag.
	reported, rejected int
}

// report records a problem.
func (d *decoder) report(at Position, format string, args ...any) {
	d.reported++
	d.problems.add(at, format, args...)
}

// reject records the problem of a value that breaks a tag of its field.
func (d *decoder) reject(at Position, format string, args ...any) {
	d.rejected++
	d.report(at, format, args...)
}

// nodeUnmarshaler is a type that YAML can write in several ways.
type nodeUnmarshaler interface {
	unmarshalNode(d *decoder, n *node, path string)
}

// decode fills the struct that into points to. The path names the value in problems, such as "mcp_servers[0]", and is ""
// for the whole file.
func (d *decoder) decode(n *node, into any, path string) {
	d.decodeValue(n, reflect.ValueOf(into).Elem(), path)
}

func (d *decoder) decodeValue(n *node, v reflect.Value, path string) {
	if u, ok := v.Addr().Interface().(nodeUnmarshaler); ok {
		u.unmarshalNode(d, n, path)
		return
	}
	if n.isNull() {
		return // Null is like a missing key.
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		d.decodeJSON(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decodeValue(n, v.Elem(), path)
	case reflect.Struct:
		d.decodeStruct(n, v, path)
	case reflect.Slice:
		d.decodeList(n, v, path)
	case reflect.Map:
		d.decodeMap(n, v, path)
	case reflect.Interface:
		v.Set(reflect.ValueOf(n.toValue()))
	default:
		d.decodeScalar(n, v, path)
	}
}

func (d *decoder) decodeStruct(n *node, v reflect.Value, path string) {
	if n.kind != kindMap {
		d.reportMismatch(n, path, "keys and values")
		return
	}
	fields := fieldsOf(v.Type())
	typeName := fields.typeOf(n)
	for _, e := range n.entries {
		f := fields.byName[e.key]
		switch {
		case f == nil:
			d.report(e.pos, "unknown key %q%s", e.key, suggestKeys(e.key, fields))
		case !d.partial && !f.isForType(typeName) && !e.value.isNull():
			d.report(e.pos, "%s", fields.wrongTypeMessage(f))
		default:
			d.decodeField(e.value, v.FieldByIndex(f.index), f, joinPath(path, e.key))
		}
	}
	if !d.partial {
		d.checkRequired(n, fields, typeName, path)
		d.checkChoices(n, fields, path)
	}
}

// decodeField decodes the value of a key, and checks the value if it could be decoded.
func (d *decoder) decodeField(n *node, v reflect.Value, f *field, path string) {
	before := d.reported
	d.decodeValue(n, v, path)
	if d.reported == before {
		d.checkValue(n, v, f, path)
	}
}

// wrongTypeMessage returns the problem of a key that the type of its struct does not have.
func (s *structFields) wrongTypeMessage(f *field) string {
	if !s.isSupported(f) {
		return unsupportedMessage(f.name)
	}
	return fmt.Sprintf("%q is for type %s; remove it or change the type", f.name, strings.Join(s.supportedTypes(f), " or "))
}

func (d *decoder) decodeList(n *node, v reflect.Value, path string) {
	if n.kind != kindList {
		d.reportMismatch(n, path, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.isNull() {
			d.report(item.pos, "%q is empty; write a value or remove the dash", at)
			continue
		}
		d.decodeValue(item, out.Index(i), at)
	}
	v.Set(out)
}

func (d *decoder) decodeMap(n *node, v reflect.Value, path string) {
	if n.kind != kindMap {
		d.reportMismatch(n, path, "keys and values")
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.entries))
	for _, e := range n.entries {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(e.value, elem, joinPath(path, e.key))
		out.SetMapIndex(reflect.ValueOf(e.key), elem)
	}
	v.Set(out)
}

// decodeJSON keeps a value as JSON.
func (d *decoder) decodeJSON(n *node, v reflect.Value, path string) {
	data, err := json.Marshal(n.toValue())
	if err != nil {
		d.report(n.pos, "%q must be a value that JSON can hold", path)
		return
	}
	v.SetBytes(data)
}

func (d *decoder) decodeScalar(n *node, v reflect.Value, path string) {
	switch s := n.scalar.(type) {
	case string:
		if v.Kind() == reflect.String {
			v.SetString(s)
			return
		}
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(s)
			return
		}
	case json.Number:
		if i, ok := exactjson.Int64(s); ok && v.CanInt() && !v.OverflowInt(i) {
			v.SetInt(i)
			return
		}
		if v.CanFloat() {
			f, _ := exactjson.Float64(s)
			v.SetFloat(f)
			return
		}
	}
	switch {
	case v.Kind() == reflect.String && n.kind == kindScalar:
		d.reportMismatch(n, path, "text: put it in quotes")
	case v.Kind() == reflect.String:
		d.reportMismatch(n, path, "text")
	case v.Kind() == reflect.Bool:
		d.reportMismatch(n, path, "true or false")
	case v.CanInt():
		d.reportMismatch(n, path, "a whole number")
	default:
		d.reportMismatch(n, path, "a number")
	}
}

func (d *decoder) reportMismatch(n *node, path, want string) {
	if path == "" {
		d.report(n.pos, "the file must hold %s, not %s", want, n.describeKind())
		return
	}
	d.report(n.pos, "%q must be %s, not %s", path, want, n.describeKind())
}

// describeKind returns the kind of a value for people.
func (n *node) describeKind() string {
	switch {
	case n.kind == kindList:
		return "a list"
	case n.kind == kindMap:
		return "keys and values"
	}
	switch s := n.scalar.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case bool:
		return "true or false"
	case json.Number:
		if double, _ := exactjson.Float64(s); strings.Contains(string(s), ".") || double != math.Trunc(double) {
			return "a fraction"
		}
	}
	return "a number"
}

// suggestKeys returns the end of the problem of an unknown key: the key that the author may have meant, else all supported
// keys.
func suggestKeys(key string, fields *structFields) string {
	names := fields.supportedNames()
	for _, name := range names {
		if EditDistance(strings.ToLower(strings.ReplaceAll(key, "-", "_")), name) <= 2 && len(key) > 2 {
			return fmt.Sprintf("; did you mean %q?", name)
		}
	}
	return "; use one of " + strings.Join(names, ", ")
}

// EditDistance returns the number of single-character edits between two short words.
func EditDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// maxDurationSeconds is the maximum of a Duration.
const maxDurationSeconds = 30 * 24 * 3600

// Duration is a number of seconds (90, 0.5) or a text ("1m30s") in YAML.
type Duration time.Duration

// Std returns the value as a time.Duration.
func (t Duration) Std() time.Duration { return time.Duration(t) }

func (t *Duration) unmarshalNode(d *decoder, n *node, path string) {
	var seconds float64
	switch s := n.scalar.(type) {
	case json.Number:
		seconds, _ = exactjson.Float64(s)
	case string:
		parsed, err := time.ParseDuration(s)
		if err != nil {
			d.reportMismatch(n, path, `seconds or a duration such as "1m30s"`)
			return
		}
		seconds = parsed.Seconds()
	case nil:
		if n.isNull() {
			return
		}
		d.reportMismatch(n, path, `seconds or a duration such as "1m30s"`)
		return
	default:
		d.reportMismatch(n, path, `seconds or a duration such as "1m30s"`)
		return
	}
	if !(seconds >= 0 && seconds <= maxDurationSeconds) {
		d.report(n.pos, "%q must be between 0 and 30 days", path)
		return
	}
	*t = Duration(seconds * float64(time.Second))
}
