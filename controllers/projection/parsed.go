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
	// maxCachedFiles is the number of cached files. maxCachedSize is the size limit of a cached file in bytes,
	// because a parsed file takes several times as much. Larger files are parsed each time.
	maxCachedFiles = 1000
	maxCachedSize  = 8 << 10
)

// parsedFile is the result of parsing a file.
type parsedFile struct {
	connector *bundle.Connector
	problem   error
}

// parsedFiles has parsed files by the digest of all inputs of the parser.
var parsedFiles = cache.New[[sha256.Size]byte, parsedFile](maxCachedFiles, 0, nil)

// ParseFile returns a parsed file of connectors/ of a deployment with these agents; see
// bundle.ParseConnector. It caches the result, because several controllers read the file at each
// reconcile. Callers must not change the result.
func ParseFile(file store.ConnectorFile, agents []string) (*bundle.Connector, error) {
	if len(file.Content) > maxCachedSize {
		return bundle.ParseConnector(file.Key, []byte(file.Content), agents)
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", file.Key, agents, file.Content))
	if p, ok := parsedFiles.Get(digest); ok {
		return p.connector, p.problem
	}
	connector, err := bundle.ParseConnector(file.Key, []byte(file.Content), agents)
	parsedFiles.Put(digest, parsedFile{connector, err})
	return connector, err
}
