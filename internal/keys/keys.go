// SPDX-License-Identifier: Apache-2.0

// Package keys makes and reads API keys: `ap_<key id>_<random>_<checksum>`.
//
//	ap_      fixed prefix, so that secret scanners know it
//	key id   8 base62 characters, shown in lists and logs
//	random   28 base62 characters, 166 bits
//	checksum CRC32 (IEEE) of all before its underscore, 6 base62 characters:
//	         a typo is told from a revoked key without a look-up
//
// Only the SHA-256 of the whole key is ever stored.
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

// Prefix begins every key.
const Prefix = "ap_"

const (
	alphabet    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idLength    = 8
	randLength  = 28
	checkLength = 6
	keyLength   = len(Prefix) + idLength + 1 + randLength + 1 + checkLength
)

// ErrMalformed says that a text is no API key: it was not copied whole, or
// mistyped.
var ErrMalformed = errors.New("not an API key")

// Key is an API key in the clear.
type Key struct {
	text string
}

// Generate makes a new random key.
func Generate() Key {
	body := Prefix + random(idLength) + "_" + random(randLength)
	return Key{text: body + "_" + checksum(body)}
}

// Parse reads a key; ErrMalformed when its form or its checksum is wrong.
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

// String is the key in the clear: show it once, store it never.
func (k Key) String() string { return k.text }

// ID is the part that may be shown and logged.
func (k Key) ID() string { return k.text[len(Prefix) : len(Prefix)+idLength] }

// Hash is the lower-case hex SHA-256 of the whole key.
func (k Key) Hash() string {
	sum := sha256.Sum256([]byte(k.text))
	return hex.EncodeToString(sum[:])
}

// Matches compares the key with a stored hash in constant time.
func (k Key) Matches(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(k.Hash()), []byte(hash)) == 1
}

func random(n int) string {
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
