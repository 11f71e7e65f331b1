// SPDX-License-Identifier: Apache-2.0

// Package keys generates and parses API keys: `ap_<key id>_<random>_<checksum>`.
//
//	ap_      fixed prefix, so that secret scanners recognize it
//	key id   8 base62 characters, shown in lists and logs
//	random   28 base62 characters, 166 bits
//	checksum CRC32 (IEEE) of the text before its underscore, 6 base62 characters:
//	         it distinguishes a typo from a revoked key without a query
//
// Only the SHA-256 of the whole key is stored.
package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math/big"
	"strings"
)

// Prefix is the prefix of all keys.
const Prefix = "ap_"

const (
	alphabet    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idLength    = 8
	randLength  = 28
	checkLength = 6
	keyLength   = len(Prefix) + idLength + 1 + randLength + 1 + checkLength
)

// ErrMalformed means that a text is not an API key, for example because it is incomplete or
// mistyped.
var ErrMalformed = errors.New("not an API key")

// Key is an API key in plain text.
type Key struct {
	text string
}

// Generate creates a random key.
func Generate() Key {
	body := Prefix + randomText(idLength) + "_" + randomText(randLength)
	return Key{text: body + "_" + checksum(body)}
}

// Parse parses a key. It returns ErrMalformed if the form or the checksum is wrong.
func Parse(text string) (Key, error) {
	if len(text) != keyLength || !strings.HasPrefix(text, Prefix) {
		return Key{}, ErrMalformed
	}
	body, check := text[:keyLength-checkLength-1], text[keyLength-checkLength:]
	if text[len(Prefix)+idLength] != '_' || text[len(body)] != '_' || checksum(body) != check {
		return Key{}, ErrMalformed
	}
	return Key{text: text}, nil
}

// String returns the key in plain text. Show it once and never store it.
func (k Key) String() string { return k.text }

// ID returns the part that can be shown and logged.
func (k Key) ID() string { return k.text[len(Prefix) : len(Prefix)+idLength] }

// Hash returns the lower-case hex SHA-256 of the whole key.
func (k Key) Hash() string {
	sum := sha256.Sum256([]byte(k.text))
	return hex.EncodeToString(sum[:])
}

// Matches compares the key with a stored hash in constant time.
func (k Key) Matches(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(k.Hash()), []byte(hash)) == 1
}

func randomText(n int) string {
	out := make([]byte, n)
	size := big.NewInt(int64(len(alphabet)))
	for i := range out {
		c, err := rand.Int(rand.Reader, size)
		if err != nil {
			panic("reading random bytes: " + err.Error()) // crypto/rand does not fail
		}
		out[i] = alphabet[c.Int64()]
	}
	return string(out)
}

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	out := make([]byte, checkLength)
	for i := checkLength - 1; i >= 0; i-- {
		out[i] = alphabet[sum%uint32(len(alphabet))]
		sum /= uint32(len(alphabet))
	}
	return string(out)
}
