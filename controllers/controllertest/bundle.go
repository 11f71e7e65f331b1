// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/store"
)

// putBundle stores a separate bundle for a deployment, and returns its digest.
func (f *Fixture) putBundle(ctx context.Context, deployment store.Key) string {
	GinkgoHelper()
	content := []byte("bundle of " + deployment.String())
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err := f.Store.PutBundle(ctx, deployment, digest, bytes.NewReader(content), 1<<20)
	Expect(err).NotTo(HaveOccurred())
	return digest
}
