// SPDX-License-Identifier: Apache-2.0

package build

import (
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// Limits of what a Git server may send, beside those of gitremote. A build needs the memory of some objects
// of maxObject and of the list of maxObjects, whatever is sent.
const (
	// maxObjects is the most objects.
	maxObjects = 500_000
	// maxObject is the most bytes of one object: no larger file fits a bundle.
	maxObject = bundle.MaxSize
	// maxFolderObject is the most bytes of a commit or of one folder's list.
	maxFolderObject = 4 << 20
	// maxInflated is the most bytes of all objects, deltas counted with their results.
	maxInflated = 4 << 30
	// maxWork is the most bytes that are inflated again to resolve deltas and to
	// write the files.
	maxWork = 16 << 30
	// objectCache is how many bytes of objects are kept, of which others are deltas.
	objectCache = 32 << 20
	// maxTreeDepth is how deep folders may nest.
	maxTreeDepth = 32
)

// What a repository may hold is what dispatch takes: with limits that differ,
// these are of different types and do not compile.
var (
	_ *[bundle.MaxConfigSize]byte = (*[dispatchapi.MaxAgentConfig]byte)(nil)
	_ *[bundle.MaxConfigs]byte    = (*[dispatchapi.MaxAgentConfigs]byte)(nil)
	_ *[bundle.MaxAgents]byte     = (*[dispatchapi.MaxAgents]byte)(nil)
)
