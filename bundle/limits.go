// SPDX-License-Identifier: Apache-2.0

package bundle

const (
	// MaxSize is the most bytes of a bundle, packed and unpacked.
	MaxSize = 25 << 20
	// MaxCodeSize is the most bytes of all files but those under tests/files/.
	MaxCodeSize = 5 << 20
	// MaxFiles is the most files of a repository's layout.
	MaxFiles = 10_000
	// MaxYAMLSize is the most bytes of one YAML file.
	MaxYAMLSize = 64 << 10
	// MaxConfigSize is the most bytes of one agent's configuration as JSON,
	// defaults folded in; MaxConfigs of those of all agents.
	MaxConfigSize = 64 << 10
	MaxConfigs    = 8 << 20
	// MaxAgents is the most agents of a repository.
	MaxAgents = 1000
	// MaxConnectors is the most connectors of a repository, MaxConnectorsSize the most
	// bytes of their files, MaxConnectorLinks the most links of one, MaxAllLinks of all.
	MaxConnectors     = 100
	MaxConnectorsSize = 1 << 20
	MaxConnectorLinks = 100
	MaxAllLinks       = 500
	// MaxSteps is the most agents that a sequential agent runs, nested ones counted.
	MaxSteps = 100

	// MaxTestCases is the most cases of all suites together, MaxTestRuns of their runs.
	MaxTestCases = 1000
	MaxTestRuns  = 5000
	// MaxAttachments is the most files of one case, MaxAttachmentsSize of their bytes
	// together: what an event may have.
	MaxAttachments     = 10
	MaxAttachmentsSize = 10 << 20

	// maxName is the most bytes of the name of an agent, a case or a variant.
	maxName = 63
	// maxVariants is the most variants of an agent.
	maxVariants = 20
	// maxDepth is how deep YAML may nest.
	maxDepth = 64
	// maxNodes is the most values of one YAML file or folded defaults, aliases
	// counted as often as they are used; see node.weight.
	maxNodes = 50_000
	// maxAllNodes is the same over all agents together.
	maxAllNodes = 250_000
	// maxPatterns is the most instructions that the regular expressions of all scripts and
	// mocks are compiled to, together: some 10 MB.
	maxPatterns = 100_000
	// maxProblems is the most problems that are reported.
	maxProblems = 200
	// maxPathLength is the most bytes of a file's path.
	maxPathLength = 255
)
