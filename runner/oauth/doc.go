// SPDX-License-Identifier: Apache-2.0

// Package oauth gets access tokens by client credentials (RFC 6749, section 4.4). Tokens are kept in memory only. No error
// contains a token, a secret or an address.
package oauth
