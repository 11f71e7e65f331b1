// SPDX-License-Identifier: Apache-2.0

// Package bundle holds a project repository as a value. It reads the folders, validates each file, reports each problem
// with file, line and column, packs the files into a bundle, and opens bundles.
//
// A repository has no manifest. The folder of a file decides its kind:
//
//	agents/**/*.yaml      one agent a file; _defaults.yaml applies to the files at and below its folder
//	connectors/*.yaml     one connector a file; the stem of the file is its key
//	models/*.yaml         scripts of the deterministic models scripted/<stem>
//	middleware/, hooks/, tools/, guardrails/ (*.star), knowledge/ (*.yaml), schemas/ (*.json), tests/
//
// No other file is read or packed.
//
// A key of a YAML file is a field of a struct. Its tags describe the key completely, see type field: the decoder enforces
// them, and the JSON Schemas, the reference page and the tests of all keys are derived from them.
//
// A bundle is a tar archive of these files in one zstd frame. Its name is the SHA-256 of its bytes. Packing is
// deterministic: equal files give equal bytes, and so the same name. Repositories and bundles are untrusted, so sizes,
// depth, numbers of files and the expansion of aliases are limited, see limits.go.
package bundle

import (
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// Project is a valid project repository.
type Project struct {
	// Agents are in the order of their files' paths.
	Agents []*Agent
	// Connectors are in the order of their files' paths.
	Connectors []*Connector
	// Suites are in the order of their files' paths.
	Suites []*Suite
	// Scripts are the scripted models, by stem.
	Scripts map[string]*Script
	// Files are all files of the layout.
	Files Files
	// Lock has the tools of MCP servers that the build listed.
	Lock Lock

	byName   map[string]*Agent
	memo     *sync.Map                // values by key, see Memo
	starlark map[string]*starlarkFile // by path
	// scriptTools are the described tools of scripts, by reference.
	scriptTools *sync.Map
	httpTools   map[string]*HTTPTool // by reference
	toolFiles   []*node              // the files with HTTP tools
}

// Memo returns a value that is derived from the project, and computes it once for each key. The value lives as long as the
// project. Keys of a package have a type of the package.
func (p *Project) Memo(key any, compute func() any) any {
	if known, ok := p.memo.Load(key); ok {
		return known
	}
	value, _ := p.memo.LoadOrStore(key, compute())
	return value
}

// Agent returns the agent with a name, or nil.
func (p *Project) Agent(name string) *Agent { return p.byName[name] }

// Load reads and validates a repository from its root. The error is Problems if the repository is invalid.
func Load(root fs.FS) (*Project, error) {
	files, err := ReadFiles(root)
	if err != nil {
		return nil, err
	}
	return Parse(files)
}

// Parse validates the files of a repository. The error is Problems, with all problems.
func Parse(files Files) (*Project, error) {
	project, problems := Examine(files)
	if len(problems) > 0 {
		return nil, problems
	}
	return project, nil
}

// Examine parses the files of a repository as far as possible and returns their problems, none for a valid repository.
// With problems, the project is incomplete: use it only to look for more problems.
func Examine(files Files) (*Project, Problems) {
	p := &repoParser{
		files:      files,
		defaults:   map[string]*node{},
		apis:       map[string]*apiDocument{},
		conditions: map[string]*expr.Value{},
		project: &Project{
			Files: files, Scripts: map[string]*Script{}, byName: map[string]*Agent{}, starlark: map[string]*starlarkFile{}, scriptTools: new(sync.Map), memo: new(sync.Map),
			httpTools: map[string]*HTTPTool{},
		},
	}
	for _, file := range files.Paths() {
		p.parseFile(file)
	}
	p.parseLock()
	p.parseStarlark()
	if len(p.project.Agents) == 0 && len(p.problems) == 0 {
		p.problems.add(Position{File: "agents"}, "no agent found; write one as agents/<name>.yaml")
	}
	if !p.hasUnreadableFile { // otherwise references to the file would be reported too
		p.linkFiles()
	}
	p.problems.sort()
	return p.project, p.problems
}

// repoParser is the state of one Parse.
type repoParser struct {
	files    Files
	defaults map[string]*node // by folder
	apis     map[string]*apiDocument
	project  *Project
	problems Problems
	weight   int
	configs  int // size of all agents in bytes
	// connectors is the size of the connectors' files in bytes, links the number of their links.
	connectors, links int
	tests             int                    // weight of all suites
	patterns          int                    // instructions of all regular expressions
	conditions        map[string]*expr.Value // compiled conditions of tools, by text
	expressions       int                    // compiled expressions of all steps and tools
	hasUnreadableFile bool                   // a file is invalid YAML
}

// parseYAMLFile parses a file. It returns nil and reports problems if the file is invalid YAML.
func (p *repoParser) parseYAMLFile(file string) *node {
	n := parseYAML(file, p.files[file], &p.problems)
	p.hasUnreadableFile = p.hasUnreadableFile || n == nil
	return n
}

func (p *repoParser) decoder() *decoder {
	return &decoder{problems: &p.problems, files: p.files, patterns: &p.patterns}
}

// parseFile dispatches on the folder and the name of a file.
func (p *repoParser) parseFile(file string) {
	folder, _, _ := strings.Cut(file, "/")
	switch f := folderOf(folder); {
	case IsHidden(file) || strings.HasPrefix(file, testFiles) || f == nil || f.unsupported || !f.holdsYAML():
	case folder == apiFolder && (path.Ext(file) == ".yaml" || path.Ext(file) == ".json"):
		p.parseAPI(file)
	case isScript(file): // parsed by parseStarlark
	case path.Ext(file) != ".yaml":
		p.checkIgnored(file, folder)
	case folder == "agents" && path.Base(file) == defaultsFile:
		p.defaultsOf(path.Dir(file))
	case folder == "agents":
		p.parseAgent(file)
	case folder == "connectors":
		p.parseConnector(file)
	case folder == "models":
		p.parseScript(file)
	case folder == "tests":
		p.parseSuite(file)
	case folder == "tools":
		p.parseToolFile(file)
	}
}

// checkIgnored rejects a file that nothing reads, except for notes.
func (p *repoParser) checkIgnored(file, folder string) {
	switch extension := strings.ToLower(path.Ext(file)); {
	case extension == ".md":
	case extension == ".yaml", extension == ".yml", extension == ".json":
		p.problems.add(Position{File: file}, "nothing reads this file; rename it to end in .yaml")
	case folder == "tests":
		p.problems.add(Position{File: file}, "nothing reads this file; name a suite .yaml and a note .md, and move an attachment to tests/files/")
	default:
		p.problems.add(Position{File: file},
			"nothing reads this file; rename it to end in .yaml, or in .md if it is a note, or move it out of %s/", folder)
	}
}

func (p *repoParser) parseAgent(file string) {
	own := p.parseYAMLFile(file)
	if own == nil {
		return
	}
	a := newAgent(file, own)
	if base := p.defaultsOf(path.Dir(file)); base != nil && own.kind == kindMap {
		a.source = withDefaults(base, own)
	}
	if p.weight += a.source.weight; p.weight > maxAllNodes || len(p.project.Agents) >= MaxAgents {
		p.problems.add(Position{File: "agents"}, "more than %d agents, or agents that are too large together", MaxAgents)
		return
	}
	d := p.decoder()
	d.suggestedName = suggestName(file)
	d.decode(a.source, a, "")
	if own.kind != kindMap {
		return
	}
	a.fillDefaults()
	p.checkDelays(a)
	p.checkMCPServers(a)
	p.checkConfig(a)
	p.project.Agents = append(p.project.Agents, a)
	if other := p.project.byName[a.Name]; other != nil {
		p.problems.add(a.At("name"), "%s has the name %q already; choose another name", other.SourcePath, a.Name)
	} else if a.Name != "" {
		p.project.byName[a.Name] = a
	}
}

// checkConfig rejects agents whose configurations are too large to store.
func (p *repoParser) checkConfig(a *Agent) {
	size := len(a.Config())
	if size > MaxConfigSize {
		p.problems.add(a.source.pos, "the agent has %d bytes with its defaults, at most %d are allowed; shorten its longest texts",
			size, MaxConfigSize)
	}
	if p.configs += size; p.configs > MaxConfigs && p.configs-size <= MaxConfigs {
		p.problems.add(a.source.pos, "the agents up to this one have more than %d MiB together; shorten them", MaxConfigs>>20)
	}
}

// linkFiles checks the references between files, after all files are parsed.
func (p *repoParser) linkFiles() {
	p.linkVariants()
	for _, a := range p.project.Agents {
		p.linkAgent(a)
	}
	p.findCycles()
	p.linkMCPServers()
	for _, c := range p.project.Connectors {
		p.linkConnector(c)
	}
	p.linkNames()
	p.linkOutbound()
	p.linkSuites()
	p.linkDefaults()
	p.linkScripts()
}

// hasFile reports whether the repository has a file.
func (p *repoParser) hasFile(file string) bool {
	_, ok := p.files[file]
	return ok
}

func fileStem(file string) string {
	base := path.Base(file)
	return strings.TrimSuffix(base, path.Ext(base))
}
