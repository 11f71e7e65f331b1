// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets. JSON converts a value of the platform for the audit log, without the
// fields that have secrets. Secrets removes known values from the answers of services.
package redact

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/agentplatform/agentplatform/internal/excerpt"
)

// Mask replaces a hidden value.
const Mask = "********"

// maxText limits a text in a document, in bytes.
const maxText = 1 << 10

// secretNames are parts of the names of fields with secret texts.
var secretNames = []string{"secret", "password", "passwd", "token", "credential", "authorization", "privatekey", "apikey", "sealed"}

// secretMaps are names of fields with only secret texts: the headers of an outbound webhook, and the
// value of a variable.
var secretMaps = []string{"headers", "value"}

// JSON returns the value as JSON with secrets masked, URLs reduced to their host, and texts cut. If
// the result is larger than limit bytes, it returns a note with the size. It returns nil for nil
// and for invalid JSON.
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
	raw, err = json.Marshal(maskValue(tree, false))
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

// maskValue masks texts below a secret name. Numbers and booleans stay, so that token counts are
// visible.
func maskValue(value any, secret bool) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = maskValue(field, secret || isSecret(name))
		}
		return v
	case []any:
		for i := range v {
			v[i] = maskValue(v[i], secret)
		}
		return v
	case string:
		if secret && v != "" {
			return Mask
		}
		return truncateText(v)
	default:
		return v
	}
}

// isSecret reports whether a field name in any spelling is secret.
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

// truncateText cuts a text. It keeps only scheme and host of a URL, because user, path and query can be
// credentials.
func truncateText(s string) string {
	if strings.Contains(s, "://") {
		u, err := url.Parse(strings.TrimSpace(s))
		switch {
		case err != nil || u.Host == "":
			return Mask
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
			return u.Scheme + "://" + u.Host + "/" + Mask
		}
	}
	return excerpt.Of(s, maxText, excerpt.Ellipsis)
}
