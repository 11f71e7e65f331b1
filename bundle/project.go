// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Project is a valid project repository.
type Project struct {
	// Agents by their files' paths, in order.
	Agents []*Agent
	// Connectors by their files' paths, in order.
	Connectors []*Connector
	// Suites are the tests by their files' paths, in order.
	Suites []*Suite
	// Scripts are the scripted models, by stem.
	Scripts map[string]*Script
	// Files are all files of the layout.
	Files Files

	byName map[string]*Agent
}

// Agent returns the agent of a name, or nil.
func (p *Project) Agent(name string) *Agent { return p.byName[name] }

// Load reads and validates a repository from its root. The error is Problems
// when the repository is at fault.
func Load(root fs.FS) (*Project, error) {
	files, err := ReadFiles(root)
	if err != nil {
		return nil, err
	}
	return Parse(files)
}

// Parse validates the files of a repository. The error is Problems, all of them.
func Parse(files Files) (*Project, error) {
	project, problems := Examine(files)
	if len(problems) > 0 {
		return nil, problems
	}
	return project, nil
}

// Examine reads the files of a repository as far as they can be read, and says what is wrong
// with them: nothing of a project that is valid. Who looks for more that is wrong may look at
// what could be read; nobody else may use it.
func Examine(files Files) (*Project, Problems) {
	p := &parsing{
		files:    files,
		defaults: map[string]*node{},
		project:  &Project{Files: files, Scripts: map[string]*Script{}, byName: map[string]*Agent{}},
	}
	for _, file := range files.Paths() {
		p.file(file)
	}
	if len(p.project.Agents) == 0 && len(p.problems) == 0 {
		p.problems.add(Position{File: "agents"}, "no agent found; write one as agents/<name>.yaml")
	}
	if !p.unread { // else what a file says of another would be said to be untrue
		p.link()
	}
	p.problems.sort()
	return p.project, p.problems
}

// parsing is the state of one Parse.
type parsing struct {
	files    Files
	defaults map[string]*node // by folder
	project  *Project
	problems Problems
	weight   int
	configs  int // bytes of all agents
	// connectors are the bytes of their files, links those of all.
	connectors, links int
	tests             int  // weight of all suites
	patterns          int  // instructions of all regular expressions
	unread            bool // a file is no YAML
}

// parse reads a file's YAML; nil where it is wrong, which the problems say.
func (p *parsing) parse(file string) *node {
	n := parseYAML(file, p.files[file], &p.problems)
	p.unread = p.unread || n == nil
	return n
}

func (p *parsing) decoder() *decoder { return &decoder{problems: &p.problems, patterns: &p.patterns} }

// file dispatches on the folder and the name of a file.
func (p *parsing) file(file string) {
	folder, _, _ := strings.Cut(file, "/")
	switch {
	case Hidden(file):
	case strings.HasPrefix(file, testFiles): // attachments, whatever they are
	case !slices.Contains(yamlFolders, folder):
	case path.Ext(file) != ".yaml":
		p.ignored(file, folder)
	case folder == "agents" && path.Base(file) == defaultsFile:
		p.defaultsOf(path.Dir(file))
	case folder == "agents":
		p.agent(file)
	case folder == "connectors":
		p.connector(file)
	case folder == "models":
		p.script(file)
	case folder == "tests":
		p.suite(file)
	}
}

// yamlFolders are the folders of the layout whose files are YAML.
var yamlFolders = []string{"agents", "connectors", "models", "tests"}

// ignored refuses a file that nothing would read, except notes.
func (p *parsing) ignored(file, folder string) {
	switch ext := strings.ToLower(path.Ext(file)); {
	case ext == ".md":
	case ext == ".yaml", ext == ".yml", ext == ".json":
		p.problems.add(Position{File: file}, "would be ignored; rename it to end in .yaml")
	case folder == "tests":
		p.problems.add(Position{File: file}, "would be ignored; a suite ends in .yaml, attachments lie in tests/files/, notes end in .md")
	default:
		p.problems.add(Position{File: file}, "would be ignored; end its name in .yaml, or in .md where it is a note, or move it out of %s/", folder)
	}
}

func (p *parsing) agent(file string) {
	own := p.parse(file)
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
	p.decoder().decode(a.source, a, "")
	if own.kind != kindMap {
		return
	}
	a.fillDefaults()
	p.checkAgent(a)
	p.checkConfig(a)
	p.project.Agents = append(p.project.Agents, a)
	if other := p.project.byName[a.Name]; other != nil {
		p.problems.add(a.At("name"), "name %q is taken by %s; choose another", a.Name, other.SourcePath)
	} else if a.Name != "" {
		p.project.byName[a.Name] = a
	}
}

// checkConfig refuses agents that are too large to be kept and shown.
func (p *parsing) checkConfig(a *Agent) {
	size := len(a.Config())
	if size > MaxConfigSize {
		p.problems.add(a.source.pos, "the agent has %d bytes with its defaults, at most %d are allowed; shorten what is longest", size, MaxConfigSize)
	}
	if p.configs += size; p.configs > MaxConfigs && p.configs-size <= MaxConfigs {
		p.problems.add(a.source.pos, "the agents up to this one have more than %d MiB together; shorten them", MaxConfigs>>20)
	}
}

// link checks what refers to other files, once all are read.
func (p *parsing) link() {
	p.linkVariants()
	for _, a := range p.project.Agents {
		p.linkAgent(a)
	}
	p.findCycles()
	for _, c := range p.project.Connectors {
		p.linkConnector(c)
	}
	p.linkNames()
	p.linkOutbound()
	p.linkSuites()
	p.linkDefaults()
}

// exists says whether the repository has a file.
func (p *parsing) exists(file string) bool {
	_, ok := p.files[file]
	return ok
}

func stem(file string) string {
	base := path.Base(file)
	return strings.TrimSuffix(base, path.Ext(base))
}
