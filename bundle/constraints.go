// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// checkRequired reports the keys that a map must have and that are missing or empty.
func (d *decoder) checkRequired(n *node, fields *structFields, typeName, path string) {
	for _, f := range fields.ordered {
		if !f.isRequiredFor(typeName) {
			continue
		}
		switch e := n.findEntry(f.name); {
		case e != nil && e.value.isEmpty():
			d.report(e.pos, "%q must not be empty; write %s", joinPath(path, f.name), d.suggest(f, path))
		case (e == nil || e.value.isNull()) && !slices.ContainsFunc(fields.excluded(f), n.hasValue):
			d.reportMissing(n, f, fields.excluded(f), typeName, path)
			if f.choice != "" {
				return // not again for the other keys of the choice
			}
		}
	}
}

// checkChoices reports keys that exclude a key before them.
func (d *decoder) checkChoices(n *node, fields *structFields, path string) {
	for i, e := range n.entries {
		f := fields.byName[e.key]
		if f == nil || e.value.isNull() {
			continue
		}
		for _, other := range fields.excluded(f) {
			if at := slices.IndexFunc(n.entries, func(o entry) bool { return o.key == other && !o.value.isNull() }); at >= 0 && at < i {
				d.report(e.pos, "%q and %q exclude each other; keep one", joinPath(path, e.key), joinPath(path, other))
			}
		}
	}
}

// reportMissing reports a missing key at the key "type" if that is why the key is required, else at the map. Any of the
// alternatives could be written instead.
func (d *decoder) reportMissing(n *node, f *field, alternatives []string, typeName, path string) {
	at, reason := n.pos, ""
	if !f.required {
		reason = ", which type " + typeName + " requires"
		if e := n.findEntry("type"); e != nil {
			at = e.pos
		}
	}
	names := strconv.Quote(joinPath(path, f.name))
	for _, other := range alternatives {
		names += " or " + strconv.Quote(joinPath(path, other))
	}
	d.report(at, "missing key %s%s; write %s", names, reason, d.suggest(f, path))
}

// suggest returns a key with a value that a person can start from.
func (d *decoder) suggest(f *field, path string) string {
	if path == "" && f.name == "name" && d.suggestedName != "" {
		return "name: " + d.suggestedName
	}
	if f.example != "" {
		return f.name + ": " + f.example
	}
	return f.name + ": " + exampleOf(f)
}

// isEmpty reports whether a value is a text or a list without content.
func (n *node) isEmpty() bool {
	return n.kind == kindScalar && n.scalar == "" || n.kind == kindList && len(n.items) == 0
}

// checkValue checks a value that could be decoded against the tags of its field. It sees written values only, so that
// a zero is a number like any other and never means the default.
func (d *decoder) checkValue(n *node, v reflect.Value, f *field, path string) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case n.isNull():
	case v.Type() == reflect.TypeFor[Duration]():
		d.checkNumber(n, time.Duration(v.Int()).Seconds(), f, path)
	case v.CanInt():
		d.checkNumber(n, float64(v.Int()), f, path)
	case v.CanFloat():
		d.checkNumber(n, v.Float(), f, path)
	case v.Kind() == reflect.String:
		d.checkText(n, v.String(), f, path)
	case f.isList():
		d.checkList(n, v, f, path)
	}
}

// checkList checks the number of items of a list, and each item that is a text.
func (d *decoder) checkList(n *node, v reflect.Value, f *field, path string) {
	if f.maxItems > 0 && v.Len() > f.maxItems {
		d.reject(n.pos, "%q must have %s", path, f.describeBounds())
	}
	if v.Type().Elem().Kind() != reflect.String {
		return
	}
	for i, item := range n.items {
		d.checkText(item, v.Index(i).String(), f, path+"["+strconv.Itoa(i)+"]")
	}
}

func (d *decoder) checkNumber(n *node, number float64, f *field, path string) {
	if (f.min == nil || number >= *f.min) && (f.max == nil || number <= *f.max) && (f.over == nil || number > *f.over) {
		return
	}
	must := f.describeBounds()
	if f.without != "" {
		must += "; leave it out for " + f.without
	}
	d.reject(n.pos, "%q must be %s", path, must)
}

// describeBounds returns the bounds of a value as a phrase, "" without bounds.
func (f *field) describeBounds() string {
	switch {
	case f.min != nil && f.max != nil:
		return "between " + formatBound(f.min) + " and " + formatBound(f.max)
	case f.min != nil:
		return "at least " + formatBound(f.min)
	case f.max != nil:
		return "at most " + formatBound(f.max)
	case f.over != nil:
		return "more than " + formatBound(f.over)
	case f.maxLength > 0:
		return fmt.Sprintf("at most %d characters", f.maxLength)
	case f.maxItems > 0:
		return fmt.Sprintf("at most %d items", f.maxItems)
	}
	return ""
}

func formatBound(bound *float64) string { return strconv.FormatFloat(*bound, 'f', -1, 64) }

// checkText checks a text against the tags enum, form, maxLength and file. An empty text is like a missing key.
func (d *decoder) checkText(n *node, text string, f *field, path string) {
	switch {
	case text == "":
	case f.enum != nil && !slices.Contains(f.enum, text):
		d.reject(n.pos, "%q must be %s", path, listChoices(f.supportedEnum()))
	case f.form != "" && !textForms[f.form].matches(text):
		d.reject(n.pos, "%q must be %s", path, textForms[f.form].description)
	case f.maxLength > 0 && utf8.RuneCountInString(text) > f.maxLength:
		d.reject(n.pos, "%q must have %s", path, f.describeBounds())
	case f.folder != "":
		d.checkFile(n, text, f, path)
	}
}

// listChoices returns allowed values as a phrase that follows "must be".
func listChoices(values []string) string {
	if len(values) == 1 {
		return strconv.Quote(values[0])
	}
	return "one of " + strings.Join(values, ", ")
}

// checkFile checks that a text names a file of the repository.
func (d *decoder) checkFile(n *node, stem string, f *field, path string) {
	if !stemName.MatchString(stem) {
		d.reject(n.pos, "%q must be the name of a file in %s, without %s", path, f.folder, f.extension)
	} else if _, found := d.files[f.folder+stem+f.extension]; !found {
		d.reject(n.pos, "%q: the file %s%s%s does not exist; add it or correct the name", path, f.folder, stem, f.extension)
	}
}
