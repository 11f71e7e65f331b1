// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Fingerprint is a digest of what is deployed where: under one id the store keeps the
// outcome of one of them.
func (s DeploymentSpec) Fingerprint() (string, error) {
	text, err := json.Marshal(map[string]any{"environment": s.Environment, "source": s.Source})
	if err != nil {
		return "", fmt.Errorf("taking the fingerprint: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
