// SPDX-License-Identifier: Apache-2.0

// Package redact makes a value fit to be kept for years and read by many: JSON
// without secrets and of a bounded size.
package redact

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Mask stands for a value that is not shown.
const Mask = "********"

// maxText is the most bytes of a text in a document.
const maxText = 1 << 10

// secretNames are parts of the names of fields whose texts are secrets.
var secretNames = []string{"secret", "password", "passwd", "token", "credential", "authorization", "privatekey", "apikey", "sealed"}

// secretMaps are names of fields that hold secrets whatever their own names are:
// the headers of an outbound webhook, and the value of a variable.
var secretMaps = []string{"headers", "value"}

// JSON is the value as JSON in which every secret is Mask, every URL ends with
// its host and texts are cut; one that is still larger than limit bytes is
// replaced by a note of its size. Nil gives nil, and so does what is no JSON.
func JSON(value any, limit int) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil || value == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil || tree == nil {
		return nil
	}
	raw, err = json.Marshal(clean(tree, false))
	if err != nil {
		return nil
	}
	if len(raw) > limit {
		raw, err = json.Marshal(map[string]int{"omitted_bytes": len(raw)})
		if err != nil {
			return nil
		}
	}
	return raw
}

// clean masks texts below a secret name; numbers and booleans stay, so that
// counts of tokens do.
func clean(value any, secret bool) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = clean(field, secret || isSecret(name))
		}
		return v
	case []any:
		for i := range v {
			v[i] = clean(v[i], secret)
		}
		return v
	case string:
		if secret && v != "" {
			return Mask
		}
		return text(v)
	default:
		return v
	}
}

// isSecret judges the name of a field, however it is spelled.
func isSecret(name string) bool {
	plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	for _, part := range secretNames {
		if strings.Contains(plain, part) {
			return true
		}
	}
	for _, whole := range secretMaps {
		if plain == whole {
			return true
		}
	}
	return false
}

// text cuts a text. Of a URL only scheme and host are kept: user, path and query
// may each be what lets somebody in.
func text(s string) string {
	if strings.Contains(s, "://") {
		u, err := url.Parse(strings.TrimSpace(s))
		switch {
		case err != nil || u.Host == "":
			return Mask
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
			return u.Scheme + "://" + u.Host + "/" + Mask
		}
	}
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
