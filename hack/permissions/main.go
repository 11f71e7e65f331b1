// SPDX-License-Identifier: Apache-2.0

// Command permissions writes two files from the table of permissions in api/v1alpha1: the
// cluster roles of project members and the reference page of the permissions.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
)

func main() {
	if err := writeFiles(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "permissions:", err)
		os.Exit(1)
	}
}

func writeFiles(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: permissions ROLES PAGE")
	}
	operations, err := operationsByPermission()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(args[0], renderRoles(), 0o644), os.WriteFile(args[1], renderPage(operations), 0o644))
}

// operationsByPermission lists the operations of the REST API under the permissions that
// its description names for them.
func operationsByPermission() (map[v1alpha1.Permission][]string, error) {
	text, err := apiserver.Document()
	if err != nil {
		return nil, fmt.Errorf("describing the REST API: %w", err)
	}
	var document struct {
		Paths map[string]map[string]map[string]any
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("reading the description of the REST API: %w", err)
	}
	operations := map[v1alpha1.Permission][]string{}
	for _, path := range document.Paths {
		for _, operation := range path {
			id, _ := operation["operationId"].(string)
			for name, value := range operation {
				for _, permission := range permissionsIn(name, value) {
					operations[permission] = append(operations[permission], id)
				}
			}
		}
	}
	for _, ids := range operations {
		slices.Sort(ids)
	}
	return operations, nil
}

// permissionsIn returns the permissions in a field of an operation.
func permissionsIn(field string, value any) (out []v1alpha1.Permission) {
	if !strings.HasPrefix(field, "x-permission") {
		return nil
	}
	switch value := value.(type) {
	case string:
		out = append(out, v1alpha1.Permission(value))
	case []any:
		for _, item := range value {
			out = append(out, v1alpha1.Permission(fmt.Sprint(item)))
		}
	}
	return out
}

// renderPage renders the reference page.
func renderPage(operations map[v1alpha1.Permission][]string) []byte {
	used := map[string]bool{}
	for permission := range operations {
		used[permission.Area()] = true
	}
	var out bytes.Buffer
	out.WriteString(pageStart)
	for _, permission := range v1alpha1.Permissions() {
		access, _ := permission.Access()
		var calls []string
		for _, id := range operations[permission] {
			calls = append(calls, "`"+id+"`")
		}
		if len(calls) == 0 {
			calls = []string{"–"}
		}
		if !used[permission.Area()] {
			calls = []string{"Unsupported"}
		}
		fmt.Fprintf(&out, "| `%s` | `%s %s` | %s | %s |\n", permission, access.Verb, access.Resource, permission.Level(), strings.Join(calls, ", "))
	}
	return out.Bytes()
}

const pageStart = "<!-- Generated from the code by `make generate`. Do not edit. -->\n\n" + `# Permissions

A permission of the REST API stands for a verb on a resource of ` + "`agentplatform.dev`" + ` in the project's namespace. The owner of an
[API key](../spec/apikey.md) needs that access, and the key needs the permission. Resources without a kind, such as ` + "`runs`" + `, exist
for these permissions only.

## Roles

Three cluster roles grant the access. Each role includes the role before it. Kubernetes adds their rules to its own roles ` + "`view`" + `,
` + "`edit`" + ` and ` + "`admin`" + `. You can also bind them directly.

| Role | Access to objects |
|---|---|
| ` + "`agentplatform-view`" + ` | Read objects of all kinds |
| ` + "`agentplatform-edit`" + ` | Write Environments, Deployments, Connectors and ConnectorLinks; create and change your own APIKeys |
| ` + "`agentplatform-admin`" + ` | Write the Project; delete APIKeys |

` + "`connectors.view`" + ` shows the secrets of webhooks, which ` + "`kubectl get connectors`" + ` does not show. For this reason
` + "`agentplatform-view`" + ` does not include creating API keys.

## Permissions

"Role" is the lowest role that grants the permission. "Operations" are the operations of the REST API that need it; some operations
need further permissions for some requests, as their descriptions say. A permission that is marked "Unsupported" can be granted and is
listed, but no endpoint of this release uses it.

| Permission | Kubernetes access | Role | Operations |
|---|---|---|---|
`
