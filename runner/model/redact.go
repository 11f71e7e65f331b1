// SPDX-License-Identifier: Apache-2.0

package model

import (
	"regexp"
	"strings"
)

const (
	redacted = "********"
	// telling is how many characters of a key, one after the other, tell of it.
	telling = 6
)

var word = regexp.MustCompile("[^\\s\"'`,;:(){}\\[\\]<>]+")

// redact blots out words of a provider's message that hold the key or a part of
// it, or look like a key that the provider itself has shortened.
func redact(message, key string) string {
	return word.ReplaceAllStringFunc(message, func(w string) string {
		if strings.Contains(w, "**") || strings.Contains(w, "..") && strings.HasPrefix(w, "sk-") || tells(w, key) {
			return redacted
		}
		return w
	})
}

// tells says whether a word holds the key, or telling characters of it.
func tells(w, key string) bool {
	if len(key) < telling {
		return key != "" && strings.Contains(w, key)
	}
	for i := 0; i+telling <= len(key); i++ {
		if strings.Contains(w, key[i:i+telling]) {
			return true
		}
	}
	return false
}
