// SPDX-License-Identifier: Apache-2.0

package build

import (
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

// maxTreeDepth limits the depth of folders.
const maxTreeDepth = 32

// packBounds limits the data of a Git server, in addition to the limits of gitremote. A build needs
// memory for a few objects of the largest size and for the list of all.
var packBounds = gitremote.Bounds{
	Objects: 500_000, Object: bundle.MaxSize, // no larger file fits into a bundle
	Folder: 4 << 20, Inflated: 4 << 30, Work: 16 << 30, Cache: 32 << 20,
}

// The limits of a repository equal the limits of dispatch. If they differ, these types do not
// compile.
var (
	_ *[bundle.MaxConfigSize]byte = (*[dispatchapi.MaxAgentConfig]byte)(nil)
	_ *[bundle.MaxConfigs]byte    = (*[dispatchapi.MaxAgentConfigs]byte)(nil)
	_ *[bundle.MaxAgents]byte     = (*[dispatchapi.MaxAgents]byte)(nil)
)
