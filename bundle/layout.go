// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path"
	"slices"
	"strings"
)

// folder is a folder at the root of a repository that a build reads and packs.
type folder struct {
	name string
	// extensions of the files that it holds, in lower case.
	extensions []string
	// unsupported is true if this release rejects files in it.
	unsupported bool
}

var (
	yamlExtensions = []string{".yaml", ".yml"}
	scripts        = []string{".star"}
)

// layout are all folders.
var layout = []folder{
	{name: "agents", extensions: yamlExtensions},
	{name: apiFolder, extensions: []string{".yaml", ".yml", ".json"}},
	{name: "connectors", extensions: yamlExtensions},
	{name: "guardrails", extensions: scripts, unsupported: true},
	{name: "hooks", extensions: scripts},
	{name: "knowledge", extensions: yamlExtensions, unsupported: true},
	{name: "middleware", extensions: scripts},
	{name: "models", extensions: yamlExtensions},
	{name: "schemas", extensions: []string{".json"}},
	{name: stepsFolder, extensions: scripts},
	{name: "tests", extensions: yamlExtensions},
	{name: "tools", extensions: slices.Concat(scripts, yamlExtensions)},
}

// folderOf returns the folder of the layout with a name, nil for any other name.
func folderOf(name string) *folder {
	for i := range layout {
		if layout[i].name == name {
			return &layout[i]
		}
	}
	return nil
}

// InLayout reports whether a build reads and packs the folder with this name at the root of a repository.
func IsLayoutFolder(name string) bool { return folderOf(name) != nil }

// UnsupportedFolders returns the folders that this release rejects.
func UnsupportedFolders() (names []string) {
	for _, f := range layout {
		if f.unsupported {
			names = append(names, f.name)
		}
	}
	return names
}

// folderNames returns the names of all folders of the layout.
func folderNames() (names []string) {
	for _, f := range layout {
		names = append(names, f.name)
	}
	return names
}

// holdsYAML reports whether the files of the folder are YAML.
func (f *folder) holdsYAML() bool { return slices.Contains(f.extensions, ".yaml") }

// holdsScripts reports whether the folder holds Starlark scripts.
func (f *folder) holdsScripts() bool { return slices.Contains(f.extensions, scripts[0]) }

// hasExtension reports whether a file has an extension that the folder holds, in any case of letters.
func (f *folder) hasExtension(file string) bool {
	return slices.Contains(f.extensions, strings.ToLower(path.Ext(file)))
}
