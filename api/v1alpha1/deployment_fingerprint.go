// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Fingerprint returns a digest of the source and the environment. The store keeps one outcome per
// ID and fingerprint. skipTests and skipFailedConnectors are part of it, because an outcome with
// tests does not apply without them.
func (s DeploymentSpec) Fingerprint() (string, error) {
	of := map[string]any{"environment": s.Environment, "source": s.Source}
	if s.SkipTests {
		of["skipTests"] = true
	}
	if s.SkipFailedConnectors {
		of["skipFailedConnectors"] = true
	}
	text, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("taking the fingerprint: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
