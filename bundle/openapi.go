// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

const (
	// MaxAPISize is the maximum size of an OpenAPI document in bytes.
	MaxAPISize = 1 << 20
	// apiPrefix begins references to operations of OpenAPI documents: api:name.operationId.
	apiPrefix = "api:"
	apiFolder = "apis"
)

// apiDocument is an OpenAPI document in apis/.
type apiDocument struct {
	name, file string
	root       map[string]any
	// server is the first server of the document, "" if it is no http or https URL without variables.
	server string
	// operations are in the order of paths and methods.
	operations []apiOperation
}

// apiOperation is an operation of a document.
type apiOperation struct {
	id, method, path string
	// item has the parameters of all operations of the path.
	item, fields map[string]any
}

// apiMethods are the methods of operations in a document.
var apiMethods = []string{"get", "head", "options", "post", "put", "patch", "delete"}

// openAPIVersion matches the supported versions.
var openAPIVersion = regexp.MustCompile(`^3\.[01](\.|$)`)

// parseAPI parses an OpenAPI document.
func (p *repoParser) parseAPI(file string) {
	at := Position{File: file, Line: 1, Column: 1}
	name := fileStem(file)
	switch {
	case path.Dir(file) != apiFolder:
		p.problems.add(Position{File: file}, "nothing reads this file; move it to %s/", apiFolder)
		return
	case !stemName.MatchString(name):
		p.problems.add(Position{File: file}, "the name of the file has letters, digits and inner _ and -, because agents name its operations by it; rename it")
		return
	case p.apis[name] != nil:
		p.problems.add(Position{File: file}, "%s has the same name; rename one of them", p.apis[name].file)
		return
	}
	root := p.decodeAPI(file)
	if root == nil {
		return
	}
	if version, _ := root["openapi"].(string); !openAPIVersion.MatchString(version) {
		p.problems.add(at, `"openapi" must be a version 3.0 or 3.1, as text`)
		return
	}
	d := &apiDocument{name: name, file: file, root: root, server: firstServer(root)}
	if err := d.listOperations(); err != nil {
		p.problems.add(at, "%v", err)
		return
	}
	p.apis[name] = d
}

// decodeAPI returns the document as decoded JSON, or nil and reports problems.
func (p *repoParser) decodeAPI(file string) map[string]any {
	at := Position{File: file, Line: 1, Column: 1}
	data := p.files[file]
	var value any
	switch {
	case len(data) > MaxAPISize:
		p.problems.add(at, "the document has %d bytes, at most %d are allowed; leave out operations that agents do not need", len(data), MaxAPISize)
	case path.Ext(file) == ".json":
		var wrong *jsonscan.SyntaxError
		if errors.As(jsonscan.Check(data), &wrong) {
			p.problems.add(Position{File: file, Line: wrong.Line, Column: wrong.Column}, "the file is not JSON: %s", wrong.Problem)
		} else if err := exactjson.Decode(data, &value); err != nil {
			p.problems.add(at, "the file is not JSON: %v", err)
		}
	default:
		n := parseYAMLWithin(yamlLimits{size: MaxAPISize, nodes: maxAllNodes}, file, data, &p.problems)
		if n != nil {
			value = n.toValue()
		}
	}
	root, isMap := value.(map[string]any)
	if !isMap && value != nil {
		p.problems.add(at, "the file must hold an OpenAPI document")
	}
	return root
}

// firstServer returns the URL of the first server if it can be a base URL.
func firstServer(root map[string]any) string {
	servers, _ := root["servers"].([]any)
	if len(servers) == 0 {
		return ""
	}
	server, _ := servers[0].(map[string]any)
	text, _ := server["url"].(string)
	if strings.ContainsAny(text, "{}$") || CheckBaseURL(text) != "" {
		return ""
	}
	return text
}

// listOperations lists the operations without building their tools.
func (d *apiDocument) listOperations() error {
	paths, _ := d.root["paths"].(map[string]any)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		item := d.resolveObject(paths[name])
		for _, method := range apiMethods {
			fields := d.resolveObject(item[method])
			if fields == nil {
				continue
			}
			id, _ := fields["operationId"].(string)
			if id == "" {
				id = method + strings.TrimRight(notInToolName.ReplaceAllString(name, "_"), "_")
			}
			if seen[id] {
				return errors.New("two operations have the operationId " + shortName(id) + "; rename one")
			}
			seen[id] = true
			d.operations = append(d.operations, apiOperation{id: id, method: strings.ToUpper(method), path: name, item: item, fields: fields})
		}
	}
	if len(d.operations) == 0 {
		return errors.New("the document has no operation under paths")
	}
	return nil
}

// resolveObject returns an object of the document, or the object that its reference names. It returns nil for anything else.
func (d *apiDocument) resolveObject(value any) map[string]any {
	const maxHops = 10
	for range maxHops {
		fields, _ := value.(map[string]any)
		reference, isReference := fields["$ref"].(string)
		if !isReference {
			return fields
		}
		target, err := jsonschema.Find(d.root, reference)
		if err != nil {
			return nil
		}
		value = target
	}
	return nil
}

// apiReference returns the document and the operation, or the prefix of operations, that a reference names.
func apiReference(reference string) (name, operation string, ok bool) {
	rest, isAPI := strings.CutPrefix(reference, apiPrefix)
	name, operation, found := strings.Cut(rest, ".")
	return name, operation, isAPI && found && name != "" && operation != ""
}

// ModelToolName returns the name of a tool for models from a reference, such as orders_look_up for orders.look_up and
// shop_getOrder for api:shop.getOrder. A name that would be too long ends with a hash.
func ModelToolName(reference string) string {
	operation, isAPI := strings.CutPrefix(reference, apiPrefix)
	name := notInToolName.ReplaceAllString(operation, "_")
	if isAPI && len(name) > maxToolName {
		const digits = 8
		sum := sha256.Sum256([]byte(reference))
		name = name[:maxToolName-digits-1] + "_" + hex.EncodeToString(sum[:])[:digits]
	}
	return name
}
