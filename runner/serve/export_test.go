// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"

	"github.com/agentplatform/agentplatform/bundle"
)

// ErrUnopened is exported to the tests.
var ErrUnopened = errUnopened

// BundleCache is a bundleCache for the tests.
type BundleCache struct{ *bundleCache }

// NewBundleCache is newBundleCache.
func NewBundleCache(d Dispatch, most int) BundleCache { return BundleCache{newBundleCache(d, most)} }

// Get is get.
func (b BundleCache) Get(ctx context.Context, digest string) (*bundle.Project, error) {
	return b.getBundle(ctx, digest)
}

// Refusals is refusals.
func (b BundleCache) Refusals() []string { return b.refusals() }

// Times of the wait for free slots.
const (
	GatherTime  = gatherTime
	GatherPause = gatherPause
)
