// SPDX-License-Identifier: Apache-2.0

package build

import (
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

// maxTreeDepth is how deep folders may nest.
const maxTreeDepth = 32

// packBounds bound what a Git server sends, beside what gitremote does. A build needs
// the memory of some objects of the largest size and of the list of all, whatever is
// sent.
var packBounds = gitremote.Bounds{
	Objects: 500_000, Object: bundle.MaxSize, // no larger file fits a bundle
	Folder: 4 << 20, Inflated: 4 << 30, Work: 16 << 30, Cache: 32 << 20,
}

// What a repository may hold is what dispatch takes: with limits that differ,
// these are of different types and do not compile.
var (
	_ *[bundle.MaxConfigSize]byte = (*[dispatchapi.MaxAgentConfig]byte)(nil)
	_ *[bundle.MaxConfigs]byte    = (*[dispatchapi.MaxAgentConfigs]byte)(nil)
	_ *[bundle.MaxAgents]byte     = (*[dispatchapi.MaxAgents]byte)(nil)
)
