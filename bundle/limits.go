// SPDX-License-Identifier: Apache-2.0

package bundle

const (
	// MaxSize is the maximum size of a bundle in bytes, packed and unpacked.
	MaxSize = 25 << 20
	// MaxCodeSize is the maximum size of all files outside of tests/files/ in bytes.
	MaxCodeSize = 5 << 20
	// MaxFiles is the maximum number of files in a repository.
	MaxFiles = 10_000
	// MaxYAMLSize is the maximum size of a YAML file in bytes.
	MaxYAMLSize = 64 << 10
	// MaxConfigSize is the maximum size of an agent's configuration as JSON in bytes, with its defaults. MaxConfigs is the
	// maximum of all agents together.
	MaxConfigSize = 64 << 10
	MaxConfigs    = 8 << 20
	// MaxScriptSize is the maximum size of a script in bytes, MaxScripts that of all scripts together.
	MaxScriptSize = 256 << 10
	MaxScripts    = 2 << 20
	// MaxAgents is the maximum number of agents in a repository.
	MaxAgents = 1000
	// MaxConnectors is the maximum number of connectors in a repository, MaxConnectorsSize the maximum size of their files
	// in bytes, MaxConnectorLinks the maximum number of links of one connector, MaxAllLinks that of all connectors.
	MaxConnectors     = 100
	MaxConnectorsSize = 1 << 20
	MaxConnectorLinks = 100
	MaxAllLinks       = 500
	// MaxSteps is the maximum number of agents and tools that a sequential agent runs, with nested ones. MaxParallelSteps
	// is the maximum number of steps that run at the same time.
	MaxSteps         = 100
	MaxParallelSteps = 8

	// MaxMCPServers is the maximum number of MCP servers of an agent, MaxMCPTools that of the tools of one server.
	MaxMCPServers = 20
	MaxMCPTools   = 64
	// MaxMCPToolSize is the maximum size of a tool of an MCP server in bytes: name, description, schema and annotations.
	// MaxMCPListSize is that of all tools that an agent gets from a server. MaxMCPSchemaDepth is the maximum depth of nested
	// values in a schema.
	MaxMCPToolSize    = 32 << 10
	MaxMCPListSize    = 128 << 10
	MaxMCPSchemaDepth = 64
	// MaxLockSize is the maximum size of mcp.lock in bytes.
	MaxLockSize = 2 << 20
	// MaxTools is the maximum number of tools of an agent in a request to its model, from all sources. MaxDiscoverableTools is
	// that of its discoverable tools, MaxHTTPTools that of all tools in tools/ and apis/ together.
	MaxTools             = 128
	MaxDiscoverableTools = 1000
	MaxHTTPTools         = 1000

	// MaxTestCases is the maximum number of cases of all suites, MaxTestRuns that of their runs.
	MaxTestCases = 1000
	MaxTestRuns  = 5000
	// MaxAttachments is the maximum number of files of a case, MaxAttachmentsSize the maximum of their bytes together. The
	// limits of an event are the same.
	MaxAttachments     = 10
	MaxAttachmentsSize = 10 << 20

	// maxName is the maximum length of the name of an agent, a case or a variant in bytes.
	maxName = 63
	// maxVariants is the maximum number of variants of an agent.
	maxVariants = 20
	// maxDepth is the maximum depth of nested YAML.
	maxDepth = 64
	// maxNodes is the maximum weight of a YAML file or of merged defaults, see node.weight.
	maxNodes = 50_000
	// maxAllNodes is the maximum weight of all agents together, and of all suites together.
	maxAllNodes = 250_000
	// maxExpressions is the maximum number of expressions of all steps and tools together, about a second of compilation.
	maxExpressions = 2_000
	// maxPatterns is the maximum number of instructions of all regular expressions together, about 10 MB.
	maxPatterns = 100_000
	// maxProblems is the maximum number of reported problems.
	maxProblems = 200
	// maxPathLength is the maximum length of a path in bytes.
	maxPathLength = 255
)
