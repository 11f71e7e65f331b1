// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"crypto/sha256"
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// keptFiles is how many parsed files are kept, and keptSize the most bytes of one: a parsed
	// file takes several times as much. Others are parsed each time.
	keptFiles = 1000
	keptSize  = 8 << 10
)

// parsedFile is what came of a file.
type parsedFile struct {
	connector *bundle.Connector
	problem   error
}

// kept are parsed files by the digest of all that decides what comes of them.
var kept = cache.New[[sha256.Size]byte, parsedFile](keptFiles, 0, nil)

// Parsed is a file of connectors/ of a deployment with these agents, as bundle.ParseConnector has
// it. Several controllers read it at each of their turns, so that it is parsed once; nobody may
// change what all of them share.
func Parsed(file store.ConnectorFile, agents []string) (*bundle.Connector, error) {
	if len(file.Content) > keptSize {
		return bundle.ParseConnector(file.Key, []byte(file.Content), agents)
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", file.Key, agents, file.Content))
	if p, ok := kept.Get(digest); ok {
		return p.connector, p.problem
	}
	connector, err := bundle.ParseConnector(file.Key, []byte(file.Content), agents)
	kept.Put(digest, parsedFile{connector, err})
	return connector, err
}
