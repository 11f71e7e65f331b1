// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// LockFile is the file of a bundle with the tools of MCP servers. The build writes it. A repository cannot have it.
const LockFile = "mcp.lock"

// Lock has the tools of the MCP servers with pinned tools, as the build listed them.
type Lock struct {
	// Servers are sorted by name.
	Servers []LockedServer `json:"servers"`
}

// LockedServer is a server with its tools.
type LockedServer struct {
	Name string `json:"server"`
	// Protocol is the version of the protocol that the server chose.
	Protocol string `json:"protocol"`
	// Tools are sorted by name.
	Tools []LockedTool `json:"tools"`
}

// LockedTool is a tool as its server described it.
type LockedTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Schema is the JSON Schema of the arguments. Annotations are the hints of the server, or empty. Both keep their digits.
	Schema      json.RawMessage `json:"schema"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	// Digest identifies all of the above.
	Digest string `json:"digest"`
}

// NewLockedTool returns a tool with canonical JSON and its digest. An error means that the schema or the annotations are
// not JSON objects.
func NewLockedTool(name, description string, schema, annotations []byte) (LockedTool, error) {
	t := LockedTool{Name: name, Description: description}
	var err error
	if t.Schema, err = canonicalObject(schema); err != nil {
		return LockedTool{}, fmt.Errorf("reading the schema of the tool: %w", err)
	}
	if len(annotations) > 0 && string(annotations) != "null" {
		if t.Annotations, err = canonicalObject(annotations); err != nil {
			return LockedTool{}, fmt.Errorf("reading the annotations of the tool: %w", err)
		}
	}
	data, err := json.Marshal(t)
	if err != nil {
		return LockedTool{}, fmt.Errorf("writing the tool: %w", err)
	}
	sum := sha256.Sum256(data)
	t.Digest = digestPrefix + hex.EncodeToString(sum[:])
	return t, nil
}

// Size returns the size of the tool in bytes.
func (t LockedTool) Size() int {
	return len(t.Name) + len(t.Description) + len(t.Schema) + len(t.Annotations)
}

// Problem returns why agents cannot get the tool, "" if they can.
func (t LockedTool) Problem() string {
	if size := t.Size(); size > MaxMCPToolSize {
		return fmt.Sprintf("the description and schema have %d bytes, at most %d are allowed", size, MaxMCPToolSize)
	}
	if depth := jsonscan.Measure(t.Schema).Depth; depth > MaxMCPSchemaDepth {
		return fmt.Sprintf("the schema has %d nested levels, at most %d are allowed", depth, MaxMCPSchemaDepth)
	}
	return ""
}

// canonicalObject returns a JSON object with sorted keys and the digits of its numbers.
func canonicalObject(text []byte) (json.RawMessage, error) {
	var value map[string]any
	if err := exactjson.Decode(text, &value); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	return json.Marshal(value)
}

// IsReadOnly reports whether the server says that the tool changes nothing.
func (t LockedTool) IsReadOnly() bool {
	var hints struct {
		ReadOnly bool `json:"readOnlyHint"`
	}
	return exactjson.Decode(t.Annotations, &hints) == nil && hints.ReadOnly
}

// Server returns the server with a name, or false.
func (l Lock) Server(name string) (LockedServer, bool) {
	at, found := slices.BinarySearchFunc(l.Servers, name, func(s LockedServer, name string) int { return cmp.Compare(s.Name, name) })
	if !found {
		return LockedServer{}, false
	}
	return l.Servers[at], true
}

// encode returns the content of LockFile. Equal locks give equal bytes.
func (l Lock) encode() ([]byte, error) {
	slices.SortFunc(l.Servers, func(a, b LockedServer) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range l.Servers {
		slices.SortFunc(s.Tools, func(a, b LockedTool) int { return cmp.Compare(a.Name, b.Name) })
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(l); err != nil {
		return nil, fmt.Errorf("writing %s: %w", LockFile, err)
	}
	return out.Bytes(), nil
}

// WriteLock adds a lock to the files of a project. A lock without servers removes the file.
func (p *Project) WriteLock(l Lock) error {
	p.Lock = l
	if len(l.Servers) == 0 {
		delete(p.Files, LockFile)
		return nil
	}
	data, err := l.encode()
	if err != nil {
		return err
	}
	if len(data) > MaxLockSize {
		return fmt.Errorf("the tools of all MCP servers have %d bytes in %s, at most %d are allowed; name fewer tools in \"tools\"",
			len(data), LockFile, MaxLockSize)
	}
	p.Files[LockFile] = data
	return nil
}

// parseLock reads the lock of a bundle.
func (p *repoParser) parseLock() {
	data, there := p.files[LockFile]
	if !there {
		return
	}
	if err := exactjson.Decode(data, &p.project.Lock); err != nil {
		p.problems.add(Position{File: LockFile}, "is not as a build writes it; deploy again")
	}
}
