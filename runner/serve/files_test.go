// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/serve"
)

func filesRepo() bundle.Files {
	files := repo()
	files["agents/reader.yaml"] = []byte("name: reader\nmodel: scripted/reader\ntools: [charge]\n")
	files["models/reader.yaml"] = []byte(`steps: [{match: '"file_issues":\[\{"name":"b.exe".*"files":\[\{"name":"a.txt".*"q":"<x>"[^\0]*file "a.txt": text/plain, 5 bytes$', text: read}, {text: no}]`)
	files["models/charger.yaml"] = []byte("steps: [{turn: 1, match: 'file', tool_calls: [{name: charge}]}, {text: charged}]")
	return files
}

// queueFiles queues a run with accepted files of these texts and one omitted file.
func (p *port) queueFiles(agent string, texts ...string) uuid.UUID {
	run := fileRun(agent, texts...)
	run.files.Issues = []dispatchapi.FileIssue{{Name: "b.exe", FieldName: "f", Reason: "unsupported_type"}}
	return p.add(run)
}

// fileRun returns a run with accepted files of these texts.
func fileRun(agent string, texts ...string) portRun {
	run := portRun{data: texts, run: dispatchapi.Run{
		AgentName: agent, ContentType: "application/json", Input: []byte(`{"q":"<x>","files":"theirs"}`), Files: true,
	}}
	for _, text := range texts {
		run.files.Files = append(run.files.Files, dispatchapi.File{Name: "a.txt", FieldName: "f", MIMEType: "text/plain", Size: int64(len(text))})
	}
	return run
}

func TestFiles_ReachModel(t *testing.T) {
	t.Parallel()
	p := newPort(t, filesRepo())
	one := started(t, p, "one", nil, nil)
	require.Equal(t, "read", p.await(t, p.queueFiles("reader", "hello")).Output)
	require.NoError(t, one.end(t))
}

// The run fails before it begins if there is no file or if one was omitted.
func TestFiles_RequiredByAgent(t *testing.T) {
	t.Parallel()
	files := filesRepo()
	files["agents/hello.yaml"] = append(files["agents/hello.yaml"], "files_required: true\n"...)
	p := newPort(t, files)
	one := started(t, p, "one", nil, nil)
	require.Equal(t, "Hello!", p.await(t, p.add(fileRun("hello", "x"))).Output)
	for _, run := range []uuid.UUID{p.queue("hello", "application/json", "{}"), p.queueFiles("hello"), p.queueFiles("hello", "x")} {
		require.Equal(t, runerror.FilesRequired, p.await(t, run).ErrorCode)
	}
	require.NoError(t, one.end(t))
}

func TestFiles_MissingFileFailsRun(t *testing.T) {
	t.Parallel()
	p := newPort(t, filesRepo())
	run := fileRun("reader", "hello")
	run.data = nil
	id := p.add(run)
	one := started(t, p, "one", nil, nil)
	end := p.await(t, id)
	require.Equal(t, dispatchapi.StatusFailed, end.Status)
	require.Equal(t, runerror.InputInvalid, end.ErrorCode)
	require.NoError(t, one.end(t))
}

// A run waits for memory until other runs have ended. Runs without files do not wait. A runner that
// stops releases waiting runs.
func TestFiles_WaitForMemory(t *testing.T) {
	t.Parallel()
	calls, finish := make(chan struct{}, 10), make(chan struct{})
	p := newPort(t, filesRepo())
	large := strings.Repeat("x", dispatchapi.MaxFiles)
	one := started(t, p, "one", func(context.Context) error { calls <- struct{}{}; <-finish; return nil }, func(o *serve.Options) { o.Concurrency = 8 })
	var runs []uuid.UUID
	for range 4 {
		runs = append(runs, p.queueFiles("charger", large))
	}
	for range 3 {
		<-calls
	}
	require.Equal(t, "Hello!", p.await(t, p.queue("hello", "text/plain", "x")).Output)
	require.Empty(t, calls)
	finish <- struct{}{}
	<-calls
	close(finish)
	for _, run := range runs {
		require.Equal(t, "charged", p.await(t, run).Output)
	}
	require.NoError(t, one.end(t))
}
