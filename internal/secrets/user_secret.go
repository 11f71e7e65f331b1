// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"fmt"
	"strings"
)

const (
	// MaxBrought limits a secret that the user brings, in bytes.
	MaxBrought = 4096
	// minSigningKey is the minimum length of the key in a whsec_… secret, in bytes.
	minSigningKey = 16
)

// CheckUserSecret returns the problem of a secret that the user brings, or "". The text continues the
// name of the secret and never contains the secret.
func CheckUserSecret(secret string) string {
	switch {
	case secret == "":
		return "is empty"
	case strings.TrimSpace(secret) != secret:
		return "begins or ends with white space, such as a line break"
	case len(secret) > MaxBrought:
		return fmt.Sprintf("has more than %d bytes", MaxBrought)
	case strings.HasPrefix(secret, SigningSecretPrefix) && len(SigningKey(secret)) < minSigningKey:
		return fmt.Sprintf("has a key of fewer than %d bytes after %s", minSigningKey, SigningSecretPrefix)
	}
	return ""
}
