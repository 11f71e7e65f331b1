// SPDX-License-Identifier: Apache-2.0

package model

import (
	"regexp"
	"strings"
)

const (
	redacted = "********"
	// telling is the number of consecutive characters that reveal a part of a key.
	telling = 6
)

var word = regexp.MustCompile("[^\\s\"'`,;:(){}\\[\\]<>]+")

// redactMessage masks words of a provider's message that contain the key or a part of it, or that
// look like a key which the provider has shortened.
func redactMessage(message, key string) string {
	return word.ReplaceAllStringFunc(message, func(w string) string {
		if strings.Contains(w, "**") || strings.Contains(w, "..") && strings.HasPrefix(w, "sk-") || containsKey(w, key) {
			return redacted
		}
		return w
	})
}

// containsKey reports whether a word contains the key, or telling consecutive characters of it.
func containsKey(w, key string) bool {
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
