// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Fingerprint is a digest of what is deployed where: under one id the store keeps the
// outcome of one of them. One that leaves out its tests, or connectors, is another
// deployment: the outcome of one that failed for them says nothing of it.
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
