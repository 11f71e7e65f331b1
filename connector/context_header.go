// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"regexp"
	"slices"
	"strings"
)

// MaxContextHeaders limits the context headers of a connector, MaxContextHeaderName the bytes of a name.
const (
	MaxContextHeaders    = 16
	MaxContextHeaderName = 128
)

var contextHeaderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// WithheldHeaders are headers that runs never see, in lower case: credentials, signatures and idempotency
// keys.
var WithheldHeaders = []string{
	"authorization", "proxy-authorization", "cookie", "x-service-secret", "x-gitlab-token", "x-api-key", "x-auth-token", "idempotency-key",
	"x-hub-signature", "x-hub-signature-256", "stripe-signature", "x-slack-signature", "webhook-signature",
}

// CheckContextHeader returns the problem of the name of a context header, or "".
func CheckContextHeader(header string) string {
	switch {
	case len(header) > MaxContextHeaderName || !contextHeaderName.MatchString(header):
		return "must be the name of a header, such as X-GitHub-Event"
	case slices.Contains(WithheldHeaders, strings.ToLower(header)):
		return "must not be a header with a credential, a signature or an idempotency key: runs never see it"
	}
	return ""
}
