// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

const (
	// maxAPIParameters is the maximum size of the JSON Schema of an operation's arguments in bytes, because each model
	// request contains it.
	maxAPIParameters = 32 << 10
	// maxAPIDescription is the maximum length of the description of an operation in bytes.
	maxAPIDescription = 1 << 10
	// bodyArgument is the argument with the JSON body.
	bodyArgument = "body"
)

// operationBuilder builds the tool of an operation.
type operationBuilder struct {
	*apiDocument
	operation  apiOperation
	tool       *HTTPTool
	properties map[string]any
	required   []any
	// inPath has the argument of each parameter of the path.
	inPath map[string]string
}

// buildTool returns the tool of an operation. The error is the reason why agents cannot call it.
func (d *apiDocument) buildTool(operation apiOperation) (*HTTPTool, error) {
	reference := apiPrefix + d.name + "." + operation.id
	b := &operationBuilder{
		apiDocument: d, operation: operation, properties: map[string]any{}, inPath: map[string]string{},
		tool: &HTTPTool{
			Reference: reference, Name: ModelToolName(reference), API: d.name, Method: operation.method, Timeout: DefaultHTTPTimeout,
			OnStatus: map[int]string{}, at: Position{File: d.file},
		},
	}
	b.tool.Idempotent = b.tool.IsRead()
	b.tool.Description = b.describeOperation()
	if err := errors.Join(b.addParameters(), b.addBody(), b.buildPath()); err != nil {
		return nil, err
	}
	b.tool.Parameters = map[string]any{"type": "object", "properties": b.properties, "additionalProperties": false}
	if len(b.required) > 0 {
		b.tool.Parameters["required"] = b.required
	}
	text, err := json.Marshal(b.tool.Parameters)
	if err != nil || len(text) > maxAPIParameters {
		return nil, fmt.Errorf("its parameters have more than %d KiB as JSON Schema", maxAPIParameters>>10)
	}
	if _, err := jsonschema.Compile(b.tool.Parameters); err != nil {
		return nil, fmt.Errorf("its parameters: %w", err)
	}
	return b.tool, nil
}

// describeOperation returns the description for models.
func (b *operationBuilder) describeOperation() string {
	summary, _ := b.operation.fields["summary"].(string)
	description, _ := b.operation.fields["description"].(string)
	text := strings.TrimSpace(strings.TrimSpace(summary) + "\n\n" + strings.TrimSpace(description))
	if text == "" {
		text = b.operation.method + " " + b.operation.path
	}
	return excerpt.Of(text, maxAPIDescription, excerpt.Ellipsis)
}

// addParameters adds the parameters of the path and of the operation. Parameters of the operation take precedence.
func (b *operationBuilder) addParameters() error {
	type place struct{ in, name string }
	var order []place
	parameters := map[place]map[string]any{}
	for _, fields := range []map[string]any{b.operation.item, b.operation.fields} {
		list, _ := fields["parameters"].([]any)
		for _, one := range list {
			parameter := b.resolveObject(one)
			in, _ := parameter["in"].(string)
			name, _ := parameter["name"].(string)
			if name == "" || in == "" {
				return errors.New("a parameter has no name, or its $ref cannot be resolved")
			}
			at := place{in, name}
			if parameters[at] == nil {
				order = append(order, at)
			}
			parameters[at] = parameter
		}
	}
	for _, at := range order {
		if err := b.addParameter(at.in, at.name, parameters[at]); err != nil {
			return err
		}
	}
	return nil
}

func (b *operationBuilder) addParameter(in, name string, parameter map[string]any) error {
	required, _ := parameter["required"].(bool)
	unsupported := func(reason string) error {
		if !required {
			return nil // Left out.
		}
		return fmt.Errorf("its parameter %s %s", shortName(name), reason)
	}
	schema, hasSchema := parameter["schema"]
	style, problem := parameterStyle(in, parameter)
	switch header := textproto.CanonicalMIMEHeaderKey(name); {
	case in == "header" && slices.Contains([]string{"Accept", "Content-Type", "Authorization", "Idempotency-Key"}, header):
		return nil // OpenAPI ignores the first three. The platform sets the last one.
	case in == "header" && (!httpguts.ValidHeaderFieldName(name) || slices.Contains(connectionHeaders, header)):
		return unsupported("is a header that agents cannot set")
	case !hasSchema:
		return unsupported("has no schema")
	case problem != "":
		return unsupported(problem)
	}
	argument, err := b.addArgument(name, schema, parameter["description"], required || in == "path")
	if err != nil {
		return fmt.Errorf("its parameter %s: %w", shortName(name), err)
	}
	field := HTTPField{Name: name, Value: Template{{Argument: argument}}, Style: style}
	switch in {
	case "path":
		b.inPath[name] = argument
	case "query":
		b.tool.Query = append(b.tool.Query, field)
	case "header":
		field.Name = textproto.CanonicalMIMEHeaderKey(name)
		b.tool.Headers = append(b.tool.Headers, field)
	}
	return nil
}

// parameterStyle returns the style of a parameter, or the problem of an unsupported one.
func parameterStyle(in string, parameter map[string]any) (style FieldStyle, problem string) {
	written, _ := parameter["style"].(string)
	explode, isWritten := parameter["explode"].(bool)
	switch in {
	case "path", "header":
		if written != "" && written != "simple" {
			return "", "has the style " + shortName(written)
		}
		return "", ""
	case "query":
	default:
		return "", "is in " + shortName(in)
	}
	switch style := FieldStyle(written); {
	case written == "" || style == StyleJoined:
		if isWritten && !explode {
			return StyleJoined, ""
		}
		return StyleExploded, ""
	case style == StyleDeepObject:
		return style, ""
	case style == StyleSpaces || style == StylePipes:
		if isWritten && explode {
			return StyleExploded, ""
		}
		return style, ""
	}
	return "", "has the style " + shortName(written)
}

// addArgument adds an argument with a schema and returns its name, which differs from the names before it.
func (b *operationBuilder) addArgument(name string, schema, description any, required bool) (argument string, err error) {
	inlined, err := jsonschema.Inline(schema, b.root)
	if err != nil {
		return "", err
	}
	clean, _ := cleanSchema(inlined).(map[string]any)
	if clean == nil {
		clean = map[string]any{}
	}
	if text, isText := description.(string); isText && text != "" {
		clean["description"] = text
	}
	argument = notInToolName.ReplaceAllString(name, "_")
	for b.properties[argument] != nil {
		argument += "_"
	}
	b.properties[argument] = clean
	if required {
		b.required = append(b.required, argument)
	}
	return argument, nil
}

// addBody adds the body: JSON as one argument, or the fields of a form.
func (b *operationBuilder) addBody() error {
	if b.operation.fields["requestBody"] == nil {
		return nil
	}
	body := b.resolveObject(b.operation.fields["requestBody"])
	required, _ := body["required"].(bool)
	content, _ := body["content"].(map[string]any)
	for _, mediaType := range slices.Sorted(maps.Keys(content)) {
		plain, _, _ := strings.Cut(mediaType, ";")
		if plain != "application/json" && !strings.HasSuffix(plain, "+json") || b.tool.IsRead() {
			continue
		}
		media := b.resolveObject(content[mediaType])
		argument, err := b.addArgument(bodyArgument, media["schema"], body["description"], required)
		if err != nil {
			return fmt.Errorf("its body: %w", err)
		}
		b.tool.Body = Template{{Argument: argument}}
		if plain != "application/json" {
			b.tool.Headers = append(b.tool.Headers, HTTPField{Name: "Content-Type", Value: Template{{Text: plain}}})
		}
		return nil
	}
	if form := b.resolveObject(content["application/x-www-form-urlencoded"]); form != nil && !b.tool.IsRead() {
		return b.addForm(form["schema"], required)
	}
	if required {
		return errors.New("its body is neither JSON nor a form")
	}
	return nil
}

// addForm adds an argument for each field of a form.
func (b *operationBuilder) addForm(schema any, required bool) error {
	inlined, err := jsonschema.Inline(schema, b.root)
	if err != nil {
		return fmt.Errorf("its body: %w", err)
	}
	fields, _ := inlined.(map[string]any)
	properties, _ := fields["properties"].(map[string]any)
	needed, _ := fields["required"].([]any)
	b.tool.Form = []HTTPField{}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		argument, err := b.addArgument(name, properties[name], nil, required && slices.Contains(needed, any(name)))
		if err != nil {
			return fmt.Errorf("its body: %w", err)
		}
		b.tool.Form = append(b.tool.Form, HTTPField{Name: name, Value: Template{{Argument: argument}}})
	}
	return nil
}

// pathParameter matches a parameter in the path of an operation.
var pathParameter = regexp.MustCompile(`\{[^{}/]*\}`)

// buildPath parses the path of the operation.
func (b *operationBuilder) buildPath() error {
	text, rest := b.operation.path, 0
	literal := func(part string) error {
		if !pathText.MatchString(part) {
			return errors.New("its path has characters that a URL must escape")
		}
		if part != "" {
			b.tool.Path = append(b.tool.Path, TemplatePart{Text: part})
		}
		return nil
	}
	for _, at := range pathParameter.FindAllStringIndex(text, -1) {
		if err := literal(text[rest:at[0]]); err != nil {
			return err
		}
		argument := b.inPath[text[at[0]+1:at[1]-1]]
		if argument == "" {
			return fmt.Errorf("its path has %s, which is no parameter in path", shortName(text[at[0]:at[1]]))
		}
		b.tool.Path = append(b.tool.Path, TemplatePart{Argument: argument})
		rest = at[1]
	}
	if !strings.HasPrefix(text, "/") {
		return errors.New("its path does not begin with /")
	}
	return literal(text[rest:])
}
