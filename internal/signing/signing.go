// SPDX-License-Identifier: Apache-2.0

// Package signing signs deliveries.
package signing

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

	"github.com/agentplatform/agentplatform/internal/seal"
)

// UserAgent is how deliveries call themselves.
const UserAgent = "agentplatform-webhook/1"

// Headers of deliveries. Those of Standard Webhooks stand beside.
const (
	// HeaderDelivery is the delivery's id, the same over all attempts.
	HeaderDelivery = "X-Service-Delivery"
	// HeaderTimestamp is when the attempt was signed, in seconds since 1970.
	HeaderTimestamp = "X-Service-Timestamp"
	// HeaderSignature is the HMAC-SHA256, in hexadecimal, of the timestamp, a dot and the
	// body, by the bytes of the signing secret as it is shown.
	HeaderSignature = "X-Service-Signature"
	// HeaderEvent is what the delivery carries: result, payload, delivery_failed or test.
	HeaderEvent = "X-Service-Event"
)

// Sign adds the headers by which a receiver knows a delivery. Those of Standard Webhooks
// have a signature by each of the former secrets too, so that a receiver may change to the
// new one within the grace period.
func Sign(headers http.Header, secret string, former []string, id uuid.UUID, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	headers.Set(HeaderDelivery, id.String())
	headers.Set(HeaderTimestamp, timestamp)
	headers.Set(HeaderSignature, hex.EncodeToString(hmacOf([]byte(secret), timestamp+".", body)))
	headers.Set("Webhook-Id", id.String())
	headers.Set("Webhook-Timestamp", timestamp)
	var signatures []string
	for _, s := range append([]string{secret}, former...) {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(hmacOf(seal.SigningKey(s), id.String()+"."+timestamp+".", body)))
	}
	headers.Set("Webhook-Signature", strings.Join(signatures, " "))
}

func hmacOf(key []byte, start string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(start))
	mac.Write(body)
	return mac.Sum(nil)
}
