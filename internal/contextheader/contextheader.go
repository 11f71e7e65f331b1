// SPDX-License-Identifier: Apache-2.0

// Package contextheader defines the request headers that runs can see.
package contextheader

import (
	"regexp"
	"slices"
	"strings"
)

// Max limits the headers of a connector, MaxName the bytes of a name.
const (
	Max     = 16
	MaxName = 128
)

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// Withheld are headers that runs never see, in lower case: credentials, signatures and idempotency
// keys.
var Withheld = []string{
	"authorization", "proxy-authorization", "cookie", "x-service-secret", "x-gitlab-token", "x-api-key", "x-auth-token", "idempotency-key",
	"x-hub-signature", "x-hub-signature-256", "stripe-signature", "x-slack-signature", "webhook-signature",
}

// Check returns the problem of a header name, or "".
func Check(header string) string {
	switch {
	case len(header) > MaxName || !name.MatchString(header):
		return "must be the name of a header, such as X-GitHub-Event"
	case slices.Contains(Withheld, strings.ToLower(header)):
		return "must not be a header with a credential, a signature or an idempotency key: runs never see it"
	}
	return ""
}
