// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"fmt"
	"strings"
)

const (
	// MaxBrought is the most bytes of a secret that the user brings.
	MaxBrought = 4096
	// minSigningKey is the fewest bytes of the key in one of the form whsec_….
	minSigningKey = 16
)

// CheckBrought says what is wrong with a secret that the user brings, in words that follow
// what it is called, "" where nothing is; it never says the secret.
func CheckBrought(secret string) string {
	switch {
	case secret == "":
		return "is empty"
	case strings.TrimSpace(secret) != secret:
		return "begins or ends with white space, such as a line break, which nobody sends or signs with"
	case len(secret) > MaxBrought:
		return fmt.Sprintf("has more than the %d bytes that it may have", MaxBrought)
	case strings.HasPrefix(secret, SigningSecretPrefix) && len(SigningKey(secret)) < minSigningKey:
		return fmt.Sprintf("has a key of fewer than %d bytes after %s", minSigningKey, SigningSecretPrefix)
	}
	return ""
}
