// SPDX-License-Identifier: Apache-2.0

package webhookapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/secrets"
)

// UserAgent is the user agent of deliveries.
const UserAgent = "agentplatform-webhook/1"

// Headers of deliveries, in addition to the headers of Standard Webhooks.
const (
	// HeaderDelivery is the ID of the delivery, the same for all attempts.
	HeaderDelivery = "X-Service-Delivery"
	// HeaderTimestamp is the time of the attempt's signature, in seconds since 1970.
	HeaderTimestamp = "X-Service-Timestamp"
	// HeaderSignature is the HMAC-SHA256, in hexadecimal, of the timestamp, a dot and the body. The
	// key is the signing secret as shown.
	HeaderSignature = "X-Service-Signature"
	// HeaderEvent is the type of the delivery: result, payload, delivery_failed or test.
	HeaderEvent = "X-Service-Event"
)

// Sign adds the headers of a delivery. The headers of Standard Webhooks also have a signature by
// each former secret, so that a receiver can change to the new secret within the grace period.
func Sign(headers http.Header, secret string, former []string, id uuid.UUID, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	headers.Set(HeaderDelivery, id.String())
	headers.Set(HeaderTimestamp, timestamp)
	headers.Set(HeaderSignature, hex.EncodeToString(computeHMAC([]byte(secret), timestamp+".", body)))
	headers.Set("Webhook-Id", id.String())
	headers.Set("Webhook-Timestamp", timestamp)
	var signatures []string
	for _, s := range append([]string{secret}, former...) {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(computeHMAC(secrets.SigningKey(s), id.String()+"."+timestamp+".", body)))
	}
	headers.Set("Webhook-Signature", strings.Join(signatures, " "))
}

func computeHMAC(key []byte, start string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(start))
	mac.Write(body)
	return mac.Sum(nil)
}
