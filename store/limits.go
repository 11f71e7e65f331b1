// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Limits in bytes as stored. Whoever produces the data keeps them first; the
// store does not rely on that.
const (
	// MaxOutput is of a run's output: a run that says more fails with
	// RunErrorOutputTooLarge.
	MaxOutput = 1 << 20
	// MaxError is of an error's or a deployment's message; the rest is cut.
	MaxError = 16 << 10
	// MaxCode is of a run's error code and of a journal entry's kind.
	MaxCode = 64
	// MaxModelAnswer and MaxToolResult are of journal entries; see JournalKind.Limit.
	MaxModelAnswer = 1 << 20
	MaxToolResult  = 256 << 10
	// MaxJournal is of all entries of a run's journal, by JournalEntry.Size: a run that
	// needs more fails with RunErrorJournalTooLarge.
	MaxJournal = 16 << 20
	// EntryOverhead is how many bytes an entry counts for beside its contents.
	EntryOverhead = 128
	// MaxBuildLog is of all chunks of a build's log; what comes after is cut, with
	// a mark. So that their number is bounded too, one of less than 64 bytes
	// counts as 64.
	MaxBuildLog = 1 << 20
	// MaxLogNumber is the highest number of a chunk: readers go on after it.
	MaxLogNumber = 1 << 30
	// MaxAgentConfig is of one agent's configuration.
	MaxAgentConfig = 64 << 10
	// MaxAgentConfigs is of the configurations of all agents of a build, and also
	// of all else that it says of them.
	MaxAgentConfigs = 8 << 20
	// MaxAgentName is of an agent's name, MaxAgentDescription of what it is for.
	MaxAgentName = 63
	// MaxTestName is of the name of an A/B variant.
	MaxTestName         = 63
	MaxAgentDescription = MaxAgentConfig
	// MaxAgentPath is of the path of an agent's file.
	MaxAgentPath = 255
	// MaxConnectorFile is of one file of connectors/, MaxConnectorFilesSize of all.
	MaxConnectorFile      = 64 << 10
	MaxConnectorFilesSize = 1 << 20
	// MaxTestResults is of a deployment's test results.
	MaxTestResults = 1 << 20
	// MaxCommitText is of a commit's message and author each; the rest is cut.
	MaxCommitText = 4 << 10
	// MaxBranch is of the name of a branch, which is dropped if it is longer.
	MaxBranch = 255
)

// MaxLinks is how many links a connector has at most, which is how many runs one
// event starts.
const MaxLinks = 100

// MaxHops is how many deliveries an event has come by at most.
const MaxHops = 8

// MaxOutboundLinks is how many links to outbound connectors an agent has at most in an
// environment, which is how many deliveries the end of one of its runs makes.
const MaxOutboundLinks = 32

// Limits of lists.
const (
	// MaxDeployments is the most deployments that a list has, the newest.
	MaxDeployments = 500
	// MaxDeploymentsSize is the most characters of texts, agents and connector
	// results that such a list holds; where they are more it ends earlier, never
	// before the newest.
	MaxDeploymentsSize = 8 << 20
	// MaxConnectorFiles is the most connectors that a build finds.
	MaxConnectorFiles = 100
	// MaxAgents is the most agents of a build.
	MaxAgents = 1000
	// MaxPastAgents is how many agents a list has of which there are runs in the past and nothing
	// else: links can name any.
	MaxPastAgents = 1000
	// MaxEntries is the most journal entries that are stored at once.
	MaxEntries = 1000
	// MaxJournalPage is the most bytes of data that a page of a journal has: see
	// LastJournalPage.
	MaxJournalPage = 4 * MaxModelAnswer
	// MaxClaim is the most runs that a claim hands over, of new ones and of those that
	// its runner did not know to have.
	MaxClaim = 64
	// MaxDigests is the most bundles that are recorded of a runner, MaxRunnerID the
	// most bytes of its name.
	MaxDigests  = 64
	MaxRunnerID = 253
	// MaxRunners is how many runners of an environment are recorded at a time. One
	// beyond that is handed runs like the others; its places are not counted.
	MaxRunners = 1000
)

// maxDigest is the most bytes of a bundle's digest.
const maxDigest = 80

const (
	// minLogChunk is what a chunk of a build's log counts at least.
	minLogChunk = 64
	// cutMark ends a text that was cut, logCutMark a log.
	cutMark    = "… (cut)"
	logCutMark = "\n… the log is cut off here\n"
)

// RunErrorReportInvalid is of runs whose end was reported in a form that is not
// stored; see Completion.Check.
const RunErrorReportInvalid RunErrorCode = "report_invalid"

// ErrTooLarge says that something is larger than the store takes.
var ErrTooLarge = errors.New("larger than the store takes")

// ErrInvalid says that something is not of the form that the store takes.
var ErrInvalid = errors.New("not of the form that the store takes")

var (
	agentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	fileStem  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	branch    = regexp.MustCompile(`^[^-/.~^:?*\[\\\pZ\pC][^~^:?*\[\\\pZ\pC]*$`)
	commit    = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	codeForm  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// checkCode says ErrInvalid of a field that holds no name such as programs have
// for things: at most MaxCode lower-case letters, digits and underscores.
func checkCode(field, code string) error {
	if len(code) > MaxCode || !codeForm.MatchString(code) {
		return fmt.Errorf("%s %.*q is not of 1 to %d lower-case letters, digits and underscores, a letter first: %w", field, MaxCode, code, MaxCode, ErrInvalid)
	}
	return nil
}

// Limit is the most bytes of a journal entry's data.
func (k JournalKind) Limit() int {
	if k == JournalToolResult {
		return MaxToolResult
	}
	return MaxModelAnswer // what a tool is started with comes from an answer
}

// LastJournalPage says whether nothing comes after a page of a journal that may have so
// many entries: there was room for one more of any size.
func LastJournalPage(page []JournalEntry, limit int) bool {
	left := MaxJournalPage - MaxModelAnswer
	for _, e := range page {
		left -= len(e.Data)
	}
	return len(page) < limit && left >= 0
}

// CheckJournal says ErrTooLarge of too many entries, or of one beyond its limit,
// and ErrInvalid of one that is not of the form that entries have.
func CheckJournal(entries []JournalEntry) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("%d journal entries, at most %d are stored at once: %w", len(entries), MaxEntries, ErrTooLarge)
	}
	for _, e := range entries {
		if err := e.check(); err != nil {
			return err
		}
		if limit := e.Kind.Limit(); len(e.Data) > limit {
			return fmt.Errorf("journal entry %d (%s) has %d bytes, at most %d are stored: %w", e.Sequence, e.Kind, len(e.Data), limit, ErrTooLarge)
		}
	}
	return nil
}

// check says ErrInvalid of an entry whose sequence or kind no entry has.
func (e JournalEntry) check() error {
	if e.Sequence < 1 {
		return fmt.Errorf("the sequence of a journal entry is %d, they count from 1: %w", e.Sequence, ErrInvalid)
	}
	if err := checkCode("the kind", string(e.Kind)); err != nil {
		return fmt.Errorf("journal entry %d: %w", e.Sequence, err)
	}
	return nil
}

// Check says ErrInvalid of an error code or of a journal entry that is not of the
// form that these have. It does not judge sizes, which Bounded does.
func (c Completion) Check() error {
	if c.ErrorCode != "" {
		if err := checkCode("error_code", string(c.ErrorCode)); err != nil {
			return err
		}
	}
	for _, e := range c.Journal {
		if err := e.check(); err != nil {
			return err
		}
	}
	return nil
}

// Bounded is the completion that is recorded for c: c itself, or a failed one
// where c is beyond a limit or fails Check, so that such a run ends all the same.
func (c Completion) Bounded() Completion {
	c.Error, c.TestName, c.Usage = Cut(c.Error, MaxError), Cut(c.TestName, MaxTestName), c.Usage.bounded()
	if err := c.Check(); err != nil {
		return c.failed(RunErrorReportInvalid, err.Error())
	}
	if err := CheckJournal(c.Journal); err != nil {
		return c.failed(RunErrorJournalTooLarge, err.Error())
	}
	if len(c.Output) > MaxOutput {
		return c.failed(RunErrorOutputTooLarge, fmt.Sprintf("the output has %d bytes, at most %d are stored", len(c.Output), MaxOutput))
	}
	return c
}

// MaxTokens is how many tokens of a kind a run is recorded with at most. Sums of them are MaxSum at most.
const MaxTokens = 1 << 40

// bounded are the tokens that are recorded of what a runner says.
func (u TokenUsage) bounded() TokenUsage {
	of := func(tokens int64) int64 { return min(max(tokens, 0), MaxTokens) }
	return TokenUsage{of(u.InputTokens), of(u.OutputTokens), of(u.ThinkingTokens), of(u.CachedInputTokens), of(u.TotalTokens)}
}

// failed keeps what is known to be small: the claim and the tokens spent.
func (c Completion) failed(code RunErrorCode, message string) Completion {
	return Completion{Lease: c.Lease, TestName: c.TestName, Status: RunFailed, ErrorCode: code, Error: message, Usage: c.Usage}
}

// Bounded cuts texts that are longer than their limit. It drops a branch or a commit that is
// none, which an object's spec or status would not take; ErrInvalid of a phase that is
// not a build's.
func (r BuildReport) Bounded() (BuildReport, error) {
	switch r.Phase {
	case "", PhaseFetching, PhasePacking, PhaseTesting:
	default:
		return r, fmt.Errorf("a build reports the phase %s, %s or %s: %w", PhaseFetching, PhasePacking, PhaseTesting, ErrInvalid)
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

// Allowed says ErrInvalid of a commit that is not the deployment's: what is told of it is
// believed by the Git provider, by promotions and by whoever deploys it again.
func (r BuildReport) Allowed(d Deployment) error {
	switch {
	case r.Branch == "" && r.Commit == "" && r.CommitMessage == "" && r.Author == "":
		return nil
	case d.SourceType != "git":
		return fmt.Errorf("the deployment is of what was uploaded, and of no commit: %w", ErrInvalid)
	case r.Commit == "":
		return nil
	case d.Commit != "" && r.Commit != d.Commit:
		return fmt.Errorf("commit %s is not %s, which the deployment is of: %w", r.Commit, d.Commit, ErrInvalid)
	case d.ResolvedCommit != "" && r.Commit != d.ResolvedCommit:
		return fmt.Errorf("commit %s is not %s, which the build began with; deploy again: %w", r.Commit, d.ResolvedCommit, ErrInvalid)
	}
	return nil
}

// Bounded cuts the message; ErrTooLarge of test results, agents and connectors beyond
// their limits, which cannot be cut, and ErrInvalid of agents, connectors or a reason
// that no build has.
func (r BuildResult) Bounded() (BuildResult, error) {
	r.Message = Cut(r.Message, MaxError)
	switch r.FailureReason {
	case "", FailureBuild, FailureTests:
	default:
		return r, fmt.Errorf("a build fails with %s or %s: %w", FailureBuild, FailureTests, ErrInvalid)
	}
	if len(r.TestResults) > MaxTestResults {
		return r, fmt.Errorf("the test results have %d bytes, at most %d are stored: %w", len(r.TestResults), MaxTestResults, ErrTooLarge)
	}
	return r, errors.Join(checkAgents(r.Agents), checkConnectorFiles(r.Connectors))
}

// checkConnectorFiles holds the files of connectors/ to their limits.
func checkConnectorFiles(files []ConnectorFile) error {
	if len(files) > MaxConnectorFiles {
		return fmt.Errorf("%d connectors, at most %d are stored: %w", len(files), MaxConnectorFiles, ErrTooLarge)
	}
	size, named := 0, make(map[string]bool, len(files))
	for i, file := range files {
		if !fileStem.MatchString(file.Key) || named[file.Key] {
			return fmt.Errorf("connector %d: its file must be named by at most 40 lower-case letters, digits and inner dashes, like no other: %w", i+1, ErrInvalid)
		}
		named[file.Key] = true
		if len(file.Content) > MaxConnectorFile {
			return fmt.Errorf("connector %q has %d bytes, at most %d are stored: %w", file.Key, len(file.Content), MaxConnectorFile, ErrTooLarge)
		}
		size += len(file.Content)
	}
	if size > MaxConnectorFilesSize {
		return fmt.Errorf("the connectors have %d bytes, at most %d are stored: %w", size, MaxConnectorFilesSize, ErrTooLarge)
	}
	return nil
}

// checkAgents holds the agents of a build to their limits, before anything of
// them is written.
func checkAgents(agents []Agent) error {
	if len(agents) > MaxAgents {
		return fmt.Errorf("%d agents, at most %d are stored: %w", len(agents), MaxAgents, ErrTooLarge)
	}
	named := make(map[string]bool, len(agents))
	configs, texts := 0, 0
	for i, a := range agents {
		if err := a.check(); err != nil {
			return fmt.Errorf("agent %d: %w", i+1, err)
		}
		if named[a.Name] {
			return fmt.Errorf("agent %d: another agent is named %q too: %w", i+1, a.Name, ErrInvalid)
		}
		named[a.Name] = true
		configs += len(a.Config)
		texts += len(a.Description) + len(a.SourcePath)
	}
	if configs > MaxAgentConfigs || texts > MaxAgentConfigs {
		return fmt.Errorf("the agents have %d bytes of configuration and %d of texts, at most %d of each are stored: %w", configs, texts, MaxAgentConfigs, ErrTooLarge)
	}
	return nil
}

// check says ErrInvalid of a name that is none, ErrTooLarge of a part that is
// beyond its limit.
func (a Agent) check() error {
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
			return fmt.Errorf("the %s has %d bytes, at most %d are stored: %w", part.what, part.have, part.most, ErrTooLarge)
		}
	}
	if !agentName.MatchString(a.Name) {
		return fmt.Errorf("the name %q is not of lower-case letters, digits and inner dashes: %w", a.Name, ErrInvalid)
	}
	return nil
}

// Bounded keeps of the runner what is recorded of it.
func (c Claim) Bounded() Claim {
	c.RunnerID = Cut(c.RunnerID, MaxRunnerID)
	kept := make([]string, 0, min(len(c.Digests), MaxDigests))
	for _, digest := range c.Digests[:min(len(c.Digests), MaxDigests)] {
		if len(digest) <= maxDigest {
			kept = append(kept, digest)
		}
	}
	c.Digests = kept
	c.Places = max(c.Places, c.Limit) // whoever wants so many has room for them
	return c
}

// LogChunk is what is stored of the next chunk of a log of which so much is
// used: all of it, its beginning with a mark, or "". It returns what is used then.
func LogChunk(used int64, chunk string) (string, int64) {
	left, cost := int(MaxBuildLog-used)-len(logCutMark), max(len(chunk), minLogChunk)
	switch {
	case chunk == "" || used >= MaxBuildLog:
		return "", used
	case cost <= left:
		return chunk, used + int64(cost)
	default:
		return prefix(chunk, max(left, 0)) + logCutMark, MaxBuildLog
	}
}

// FailedTests counts the test results that did not pass.
func FailedTests(results json.RawMessage) int {
	_, failed := CountTests(results)
	return failed
}

// CountTests counts test results, and those of them that did not pass; results are
// in their REST shape.
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

// Cut shortens text to at most so many bytes, whole characters and a mark.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return prefix(text, most-len(cutMark)) + cutMark
}

// prefix is the beginning of text in whole characters.
func prefix(text string, most int) string {
	return strings.ToValidUTF8(text[:min(most, len(text))], "")
}
