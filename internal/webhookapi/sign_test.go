// SPDX-License-Identifier: Apache-2.0

package webhookapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

func TestSign_IsVerifiedByLibrary(t *testing.T) {
	t.Parallel()
	former := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("f", 32)))
	before, err := standardwebhooks.NewWebhook(former)
	require.NoError(t, err)
	for name, secret := range map[string]string{
		"derived": "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))),
		"brought": "not base64 at all, with spaces",
	} {
		t.Run(name, func(t *testing.T) {
			headers, id, body := http.Header{}, uuid.New(), []byte(`{"run_id":"1"}`)
			at := time.Now() // the library has no other clock
			Sign(headers, secret, []string{former}, id, at, body)

			// The contract: the secret as shown signs timestamp, dot and body.
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(headers.Get("X-Service-Timestamp") + "." + string(body)))
			require.Equal(t, hex.EncodeToString(mac.Sum(nil)), headers.Get("X-Service-Signature"))
			require.Equal(t, id.String(), headers.Get("X-Service-Delivery"))

			var receiver *standardwebhooks.Webhook
			var err error
			if name == "derived" {
				receiver, err = standardwebhooks.NewWebhook(secret)
			} else {
				receiver, err = standardwebhooks.NewWebhookRaw([]byte(secret))
			}
			require.NoError(t, err)
			require.NoError(t, receiver.Verify(body, headers))
			require.NoError(t, before.Verify(body, headers), "a receiver with the old secret")
			require.Error(t, receiver.Verify(append(body, ' '), headers))
		})
	}
}
