// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// Limits in bytes as stored. Producers of the data enforce them first, but the store does not rely
// on that.
const (
	// MaxOutput limits the output of a run. A run with a larger output fails with
	// runerror.OutputTooLarge.
	MaxOutput = 1 << 20
	// MaxContext limits what scripts set in a run's context, as JSON. A run with more fails with
	// runerror.ContextTooLarge.
	MaxContext = 64 << 10
	// MaxListedContext limits it in lists, which omit a larger one.
	MaxListedContext = 4 << 10
	// MaxError limits the message of an error or a deployment. The rest is cut.
	MaxError = 16 << 10
	// MaxCode limits the error code of a run and the kind of a journal entry.
	MaxCode = 64
	// MaxModelAnswer and MaxToolResult limit journal entries; see JournalKind.Limit.
	MaxModelAnswer = 1 << 20
	MaxToolResult  = 256 << 10
	// MaxJournal limits all entries of a run's journal, by JournalEntry.Size. A run that exceeds it
	// fails with runerror.JournalTooLarge.
	MaxJournal = 16 << 20
	// EntryOverhead is the number of bytes that an entry counts in addition to its contents.
	EntryOverhead = 128
	// MaxBuildLog limits all chunks of a build log. The rest is cut, with a mark. Chunks below 64
	// bytes count as 64, which also limits their number.
	MaxBuildLog = 1 << 20
	// MaxLogNumber is the highest chunk number, because readers continue after it.
	MaxLogNumber = 1 << 30
	// MaxAgentConfig limits the configuration of one agent.
	MaxAgentConfig = 64 << 10
	// MaxAgentConfigs limits the configurations of all agents of a build, and separately all their
	// other fields.
	MaxAgentConfigs = 8 << 20
	// MaxAgentName limits the name of an agent, MaxAgentDescription its description.
	MaxAgentName = 63
	// MaxTestName limits the name of an A/B variant.
	MaxTestName         = 63
	MaxAgentDescription = MaxAgentConfig
	// MaxAgentPath limits the path of an agent's file.
	MaxAgentPath = 255
	// MaxConnectorFile limits one file in connectors/, MaxConnectorFilesSize all of them.
	MaxConnectorFile      = 64 << 10
	MaxConnectorFilesSize = 1 << 20
	// MaxTestResults limits the test results of a deployment.
	MaxTestResults = 1 << 20
	// MaxCommitText limits the message and the author of a commit, each. The rest is cut.
	MaxCommitText = 4 << 10
	// MaxBranch limits the name of a branch. A longer name is dropped.
	MaxBranch = 255
)

// MaxLinks is the maximum number of links per connector, and so the maximum number of runs per
// event.
const MaxLinks = 100

// MaxHops is the maximum number of platform deliveries that lead to an event.
const MaxHops = 8

// MaxOutboundLinks is the maximum number of links to outbound connectors per agent and environment,
// and so the maximum number of deliveries per run end.
const MaxOutboundLinks = 32

// Limits of lists.
const (
	// MaxDeployments is the maximum length of a list of deployments.
	MaxDeployments = 500
	// MaxDeploymentsSize is the maximum number of characters of texts, agents and connector results
	// in such a list. A longer list ends earlier, but includes at least the newest deployment.
	MaxDeploymentsSize = 8 << 20
	// MaxConnectorFiles is the maximum number of connectors in a build.
	MaxConnectorFiles = 100
	// MaxAgents is the maximum number of agents in a build.
	MaxAgents = 1000
	// MaxAgentModels is the maximum number of models of an agent.
	MaxAgentModels = 64
	// MaxPastAgents is the maximum number of listed agents that exist only in past runs, because
	// links can name any agent.
	MaxPastAgents = 1000
	// MaxEntries is the maximum number of journal entries per append.
	MaxEntries = 1000
	// MaxJournalPage is the maximum number of data bytes in a journal page: see LastJournalPage.
	MaxJournalPage = 4 * MaxModelAnswer
	// MaxClaim is the maximum number of runs that a claim returns, new ones and ones that the
	// runner did not name.
	MaxClaim = 64
	// MaxDigests is the maximum number of bundles recorded per runner. MaxRunnerID is the maximum
	// size of its name in bytes.
	MaxDigests  = 64
	MaxRunnerID = 253
	// MaxRunners is the maximum number of recorded runners per environment. A runner beyond it gets
	// runs like the others, but its slots are not counted.
	MaxRunners = 1000
)

// maxDigest is the maximum size of a bundle digest in bytes.
const maxDigest = 80

const (
	// minLogChunk is the minimum size that a chunk of a build log counts.
	minLogChunk = 64
	// cutMark ends a cut text, logCutMark a cut log.
	cutMark    = "… (cut)"
	logCutMark = "\n… the log is cut off here\n"
)

// ErrTooLarge means that a value exceeds a limit of the store.
var ErrTooLarge = errors.New("above the size limit of the store")

// ErrInvalid means that a value does not have the required form.
var ErrInvalid = errors.New("not in the form that the store requires")

var (
	agentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	fileStem  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	branch    = regexp.MustCompile(`^[^-/.~^:?*\[\\\pZ\pC][^~^:?*\[\\\pZ\pC]*$`)
	commit    = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	codeForm  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// checkCode returns ErrInvalid unless the field is a machine-readable code: at most MaxCode
// lower-case letters, digits and underscores.
func checkCode(field, code string) error {
	if len(code) > MaxCode || !codeForm.MatchString(code) {
		return fmt.Errorf("%s %.*q must have 1 to %d lower-case letters, digits and underscores and start with a letter: %w", field, MaxCode, code, MaxCode, ErrInvalid)
	}
	return nil
}

// Limit returns the maximum size of a journal entry's data in bytes.
func (k JournalKind) Limit() int {
	if k == JournalToolResult {
		return MaxToolResult
	}
	return MaxModelAnswer // the arguments of a tool come from a model response
}

// LastJournalPage reports whether a page is the last one of its journal: it has room for one more
// entry of any size.
func LastJournalPage(page []JournalEntry, limit int) bool {
	left := MaxJournalPage - MaxModelAnswer
	for _, e := range page {
		left -= len(e.Data)
	}
	return len(page) < limit && left >= 0
}

// CheckJournal returns ErrTooLarge for too many entries or an entry above its limit, and ErrInvalid
// for an entry in another form.
func CheckJournal(entries []JournalEntry) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("%d journal entries at once; the limit is %d: %w", len(entries), MaxEntries, ErrTooLarge)
	}
	for _, e := range entries {
		if err := e.checkEntry(); err != nil {
			return err
		}
		if limit := e.Kind.Limit(); len(e.Data) > limit {
			return fmt.Errorf("journal entry %d (%s) has %d bytes; the limit is %d: %w", e.Sequence, e.Kind, len(e.Data), limit, ErrTooLarge)
		}
	}
	return nil
}

// checkEntry returns ErrInvalid for an invalid sequence or kind.
func (e JournalEntry) checkEntry() error {
	if e.Sequence < 1 {
		return fmt.Errorf("the sequence of a journal entry is %d; sequences start at 1: %w", e.Sequence, ErrInvalid)
	}
	if err := checkCode("the kind", string(e.Kind)); err != nil {
		return fmt.Errorf("journal entry %d: %w", e.Sequence, err)
	}
	if e.Kind == JournalFile {
		return fmt.Errorf("journal entry %d: an entry of a file needs the bytes of the file: %w", e.Sequence, ErrInvalid)
	}
	return nil
}

// Check returns ErrInvalid for an error code, a finish reason or a journal entry in another form. Bounded checks
// sizes.
func (c Completion) Check() error {
	if c.ErrorCode != "" {
		if err := checkCode("error_code", string(c.ErrorCode)); err != nil {
			return err
		}
	}
	if c.FinishReason != "" {
		if err := checkCode("finish_reason", c.FinishReason); err != nil {
			return err
		}
	}
	if len(c.Context) > 0 && (c.Context[0] != '{' || !json.Valid(c.Context)) {
		return fmt.Errorf("the context is no JSON object: %w", ErrInvalid)
	}
	for _, e := range c.Journal {
		if err := e.checkEntry(); err != nil {
			return err
		}
	}
	return nil
}

// Bounded returns the completion to record. That is c, or a failed completion if c exceeds a limit
// or fails Check, so the run ends in any case.
func (c Completion) Bounded() Completion {
	c.Error, c.TestName, c.Usage = Cut(c.Error, MaxError), Cut(c.TestName, MaxTestName), c.Usage.bounded()
	if err := c.Check(); err != nil {
		return c.failedCompletion(runerror.ReportInvalid, err.Error())
	}
	if err := CheckJournal(c.Journal); err != nil {
		return c.failedCompletion(runerror.JournalTooLarge, err.Error())
	}
	if len(c.Context) > MaxContext {
		return c.failedCompletion(runerror.ContextTooLarge, fmt.Sprintf("the context has %d bytes; the limit is %d", len(c.Context), MaxContext))
	}
	if len(c.Output) > MaxOutput {
		return c.failedCompletion(runerror.OutputTooLarge, fmt.Sprintf("the output has %d bytes; the limit is %d", len(c.Output), MaxOutput))
	}
	return c
}

// MaxTokens is the maximum recorded number of tokens of a kind per run. Sums are at most MaxSum.
const MaxTokens = 1 << 40

// bounded returns the reported tokens within the limits.
func (u TokenUsage) bounded() TokenUsage {
	of := func(tokens int64) int64 { return min(max(tokens, 0), MaxTokens) }
	return TokenUsage{of(u.InputTokens), of(u.OutputTokens), of(u.ThinkingTokens), of(u.CachedInputTokens), of(u.TotalTokens)}
}

// failedCompletion returns a failed completion with the parts that are known to be small: the claim, the used
// tokens and a valid finish reason.
func (c Completion) failedCompletion(code runerror.Code, message string) Completion {
	failed := Completion{Lease: c.Lease, TestName: c.TestName, Status: RunFailed, ErrorCode: code, Error: message, Usage: c.Usage}
	if checkCode("finish_reason", c.FinishReason) == nil {
		failed.FinishReason = c.FinishReason
	}
	return failed
}

// Bounded cuts texts that exceed their limit. It drops an invalid branch or commit, because a spec
// or status would reject it. It returns ErrInvalid for a phase that is not a build's.
func (r BuildReport) Bounded() (BuildReport, error) {
	switch r.Phase {
	case "", PhaseFetching, PhasePacking, PhaseTesting:
	default:
		return r, fmt.Errorf("the phase of a build must be %s, %s or %s: %w", PhaseFetching, PhasePacking, PhaseTesting, ErrInvalid)
	}
	if !commit.MatchString(r.Commit) {
		r.Commit = ""
	}
	if !branch.MatchString(r.Branch) || strings.Contains(r.Branch, "..") || len(r.Branch) > MaxBranch {
		r.Branch = ""
	}
	r.CommitMessage, r.Author = Cut(r.CommitMessage, MaxCommitText), Cut(r.Author, MaxCommitText)
	return r, nil
}

// Allowed returns ErrInvalid if the commit is not the deployment's. The Git provider, promotions
// and redeploys trust it.
func (r BuildReport) Allowed(d Deployment) error {
	switch {
	case r.Branch == "" && r.Commit == "" && r.CommitMessage == "" && r.Author == "":
		return nil
	case d.SourceType != "git":
		return fmt.Errorf("the deployment is of an upload and has no commit: %w", ErrInvalid)
	case r.Commit == "":
		return nil
	case d.Commit != "" && r.Commit != d.Commit:
		return fmt.Errorf("commit %s is not the deployment's commit %s: %w", r.Commit, d.Commit, ErrInvalid)
	case d.ResolvedCommit != "" && r.Commit != d.ResolvedCommit:
		return fmt.Errorf("commit %s is not %s, with which the build began; deploy again: %w", r.Commit, d.ResolvedCommit, ErrInvalid)
	}
	return nil
}

// Bounded cuts the message. It returns ErrTooLarge for test results, agents and connectors above
// their limits, which cannot be cut, and ErrInvalid for invalid agents, connectors or reasons.
func (r BuildResult) Bounded() (BuildResult, error) {
	r.Message = Cut(r.Message, MaxError)
	switch r.FailureReason {
	case "", FailureBuild, FailureTests:
	default:
		return r, fmt.Errorf("the reason of a failed build must be %s or %s: %w", FailureBuild, FailureTests, ErrInvalid)
	}
	if len(r.TestResults) > MaxTestResults {
		return r, fmt.Errorf("the test results have %d bytes; the limit is %d: %w", len(r.TestResults), MaxTestResults, ErrTooLarge)
	}
	return r, errors.Join(checkAgents(r.Agents), checkConnectorFiles(r.Connectors))
}

// checkConnectorFiles checks the limits of the files in connectors/.
func checkConnectorFiles(files []ConnectorFile) error {
	if len(files) > MaxConnectorFiles {
		return fmt.Errorf("%d connectors; the limit is %d: %w", len(files), MaxConnectorFiles, ErrTooLarge)
	}
	size, named := 0, make(map[string]bool, len(files))
	for i, file := range files {
		if !fileStem.MatchString(file.Key) || named[file.Key] {
			return fmt.Errorf("connector %d: its file needs a unique name of at most 40 lower-case letters, digits and inner dashes: %w", i+1, ErrInvalid)
		}
		named[file.Key] = true
		if len(file.Content) > MaxConnectorFile {
			return fmt.Errorf("connector %q has %d bytes; the limit is %d: %w", file.Key, len(file.Content), MaxConnectorFile, ErrTooLarge)
		}
		size += len(file.Content)
	}
	if size > MaxConnectorFilesSize {
		return fmt.Errorf("the connectors have %d bytes; the limit is %d: %w", size, MaxConnectorFilesSize, ErrTooLarge)
	}
	return nil
}

// checkAgents checks the limits of a build's agents before anything is written.
func checkAgents(agents []Agent) error {
	if len(agents) > MaxAgents {
		return fmt.Errorf("%d agents; the limit is %d: %w", len(agents), MaxAgents, ErrTooLarge)
	}
	named := make(map[string]bool, len(agents))
	configs, texts := 0, 0
	for i, a := range agents {
		if err := a.checkLimits(); err != nil {
			return fmt.Errorf("agent %d: %w", i+1, err)
		}
		if named[a.Name] {
			return fmt.Errorf("agent %d: another agent has the name %q: %w", i+1, a.Name, ErrInvalid)
		}
		named[a.Name] = true
		configs += len(a.Config)
		texts += len(a.Description) + len(a.SourcePath) + len(strings.Join(a.Models, " "))
	}
	if configs > MaxAgentConfigs || texts > MaxAgentConfigs {
		return fmt.Errorf("the agents have %d bytes of configuration and %d of texts; the limit of each is %d: %w", configs, texts, MaxAgentConfigs, ErrTooLarge)
	}
	return nil
}

// checkLimits returns ErrInvalid for an invalid name, and ErrTooLarge for a field above its limit.
func (a Agent) checkLimits() error {
	for _, part := range []struct {
		what       string
		have, most int
	}{
		{"name", len(a.Name), MaxAgentName},
		{"description", len(a.Description), MaxAgentDescription},
		{"type", len(a.Type), MaxAgentName},
		{"source_path", len(a.SourcePath), MaxAgentPath},
		{"variant_of", len(a.VariantOf), MaxAgentName},
		{"test_name", len(a.TestName), MaxTestName},
		{"config", len(a.Config), MaxAgentConfig},
		{"concurrency_key", len(a.ConcurrencyKey), MaxConcurrencyExpression},
	} {
		if part.have > part.most {
			return fmt.Errorf("the %s has %d bytes; the limit is %d: %w", part.what, part.have, part.most, ErrTooLarge)
		}
	}
	if len(a.Models) > MaxAgentModels {
		return fmt.Errorf("%d models; the limit is %d: %w", len(a.Models), MaxAgentModels, ErrTooLarge)
	}
	if !agentName.MatchString(a.Name) {
		return fmt.Errorf("the name %q must have only lower-case letters, digits and inner dashes: %w", a.Name, ErrInvalid)
	}
	return nil
}

// Bounded returns the claim with the runner fields that can be recorded.
func (c Claim) Bounded() Claim {
	c.RunnerID = Cut(c.RunnerID, MaxRunnerID)
	kept := make([]string, 0, min(len(c.Digests), MaxDigests))
	for _, digest := range c.Digests[:min(len(c.Digests), MaxDigests)] {
		if len(digest) <= maxDigest {
			kept = append(kept, digest)
		}
	}
	c.Digests = kept
	c.Slots = max(c.Slots, c.Limit) // a runner that asks for so many runs has slots for them
	return c
}

// LogChunk returns the part of the next chunk to store, if used bytes of the log are taken: all of
// it, its beginning with a mark, or "". It also returns the bytes used afterwards.
func LogChunk(used int64, chunk string) (string, int64) {
	left, cost := int(MaxBuildLog-used)-len(logCutMark), max(len(chunk), minLogChunk)
	switch {
	case chunk == "" || used >= MaxBuildLog:
		return "", used
	case cost <= left:
		return chunk, used + int64(cost)
	default:
		return textPrefix(chunk, max(left, 0)) + logCutMark, MaxBuildLog
	}
}

// FailedTests counts the failed test results.
func FailedTests(results json.RawMessage) int {
	_, failed := CountTests(results)
	return failed
}

// CountTests counts all and failed test results. results are in REST shape.
func CountTests(results json.RawMessage) (total, failed int) {
	var list []struct {
		Passed bool `json:"passed"`
	}
	if len(results) == 0 || json.Unmarshal(results, &list) != nil {
		return 0, 0
	}
	for _, r := range list {
		if !r.Passed {
			failed++
		}
	}
	return len(list), failed
}

// Cut shortens text to at most so many bytes, in whole characters and with a mark.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return textPrefix(text, most-len(cutMark)) + cutMark
}

// textPrefix returns the beginning of text in whole characters.
func textPrefix(text string, most int) string {
	return strings.ToValidUTF8(text[:min(most, len(text))], "")
}
