// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// decoder fills structs from nodes. It is strict (unknown keys and other types
// are problems) and goes on after a problem, so that all are found at once.
type decoder struct {
	problems *Problems
	// outside counts the problems that are numbers beyond their bounds.
	outside int
	// patterns counts the instructions of regular expressions.
	patterns *int
}

// nodeUnmarshaler is a type with more than one way to write it.
type nodeUnmarshaler interface {
	unmarshalNode(d *decoder, n *node, path string)
}

// decode fills the struct that into points to from a map; path is "" or names
// the value in messages, such as "mcp_servers[0]".
func (d *decoder) decode(n *node, into any, path string) {
	d.value(n, reflect.ValueOf(into).Elem(), path)
}

func (d *decoder) value(n *node, v reflect.Value, path string) {
	if u, ok := v.Addr().Interface().(nodeUnmarshaler); ok {
		u.unmarshalNode(d, n, path)
		return
	}
	if n.null() {
		return // As if the key were not there.
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		d.dictionary(n, v, path)
	case reflect.Interface:
		v.Set(reflect.ValueOf(n.value()))
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) structure(n *node, v reflect.Value, path string) {
	if n.kind != kindMap {
		d.mismatch(n, path, "keys and values")
		return
	}
	fields := fieldsOf(v.Type())
	for _, e := range n.entries {
		i, ok := fields[e.key]
		if !ok {
			d.problems.add(e.pos, "unknown key %q%s", e.key, hint(e.key, v.Type()))
			continue
		}
		before := len(*d.problems)
		d.value(e.value, v.Field(i), join(path, e.key))
		if len(*d.problems) == before {
			d.checkNumber(e.value, v.Field(i), v.Type().Field(i).Tag, join(path, e.key))
		}
	}
}

func (d *decoder) list(n *node, v reflect.Value, path string) {
	if n.kind != kindList {
		d.mismatch(n, path, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.null() {
			d.problems.add(item.pos, "%q is empty; write a value or remove the dash", at)
			continue
		}
		d.value(item, out.Index(i), at)
	}
	v.Set(out)
}

func (d *decoder) dictionary(n *node, v reflect.Value, path string) {
	if n.kind != kindMap {
		d.mismatch(n, path, "keys and values")
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.entries))
	for _, e := range n.entries {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, elem, join(path, e.key))
		out.SetMapIndex(reflect.ValueOf(e.key), elem)
	}
	v.Set(out)
}

func (d *decoder) scalar(n *node, v reflect.Value, path string) {
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
		d.mismatch(n, path, "text: put it in quotes")
	case v.Kind() == reflect.String:
		d.mismatch(n, path, "text")
	case v.Kind() == reflect.Bool:
		d.mismatch(n, path, "true or false")
	case v.CanInt():
		d.mismatch(n, path, "a whole number")
	default:
		d.mismatch(n, path, "a number")
	}
}

func (d *decoder) mismatch(n *node, path, want string) {
	if path == "" {
		d.problems.add(n.pos, "the file must hold %s, not %s", want, n.describe())
		return
	}
	d.problems.add(n.pos, "%q must be %s, not %s", path, want, n.describe())
}

// describe names the kind of a value for people.
func (n *node) describe() string {
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

func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name != "" {
			fields[name] = i
		}
	}
	return fields
}

// hint says which key of a struct may have been meant, else which there are in this release.
func hint(key string, t reflect.Type) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(fieldsOf(t))), func(name string) bool { return isUnsupported(t, name) })
	for _, name := range names {
		if distance(strings.ToLower(strings.ReplaceAll(key, "-", "_")), name) <= 2 && len(key) > 2 {
			return fmt.Sprintf("; did you mean %q?", name)
		}
	}
	return "; the keys here are " + strings.Join(names, ", ")
}

// distance is the number of single-character edits between two short words.
func distance(a, b string) int {
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

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func reflectString(s *string) reflect.Value { return reflect.ValueOf(s).Elem() }

// maxDurationSeconds is the longest Duration.
const maxDurationSeconds = 30 * 24 * 3600

// Duration is written as seconds (90, 0.5) or as text ("1m30s").
type Duration time.Duration

// Std is the standard library's type of the same value.
func (t Duration) Std() time.Duration { return time.Duration(t) }

func (t *Duration) unmarshalNode(d *decoder, n *node, path string) {
	var seconds float64
	switch s := n.scalar.(type) {
	case json.Number:
		seconds, _ = exactjson.Float64(s)
	case string:
		parsed, err := time.ParseDuration(s)
		if err != nil {
			d.mismatch(n, path, `seconds or a duration such as "1m30s"`)
			return
		}
		seconds = parsed.Seconds()
	case nil:
		if n.null() {
			return
		}
		d.mismatch(n, path, `seconds or a duration such as "1m30s"`)
		return
	default:
		d.mismatch(n, path, `seconds or a duration such as "1m30s"`)
		return
	}
	if !(seconds >= 0 && seconds <= maxDurationSeconds) {
		d.problems.add(n.pos, "%q must be between 0 and 30 days", path)
		return
	}
	*t = Duration(seconds * float64(time.Second))
}
