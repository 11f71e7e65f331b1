// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// requireProjectOrProblems checks the rule for every input: the result is a project, or problems that
// name a file.
func requireProjectOrProblems(t *testing.T, f bundle.Files) {
	t.Helper()
	p, err := bundle.Parse(f)
	if err == nil {
		for _, a := range p.Agents {
			require.NotEmpty(t, a.Config())
		}
		return
	}
	var problems bundle.Problems
	require.ErrorAs(t, err, &problems)
	for _, one := range problems {
		require.NotEmpty(t, one.File)
		require.NotEmpty(t, one.Message)
	}
}

func FuzzAgent(f *testing.F) {
	f.Add("model: openai/x\ntools: [a]\n", "name: a\ntools: [{b.c.d: x > 1}]\n")
	f.Add("retry_options: {attempts: 2}", "name: a\nretry_options:\n  max_delay: 1m\n")
	f.Add("a: &a [x]", "name: &n a\nagents: [*n]\ntype: sequential\n")
	f.Add("", "name: a\nguardrails: {input: [{type: regex, pattern: '('}]}\n? [x]: y\n")
	f.Fuzz(func(t *testing.T, defaults, agent string) {
		requireProjectOrProblems(t, newFiles("agents/_defaults.yaml", defaults, "agents/x/a.yaml", agent))
	})
}

func FuzzConnector(f *testing.F) {
	f.Add("type: webhook\nmode: sync\nagents: [ok]\nconfig: {timeout_seconds: 3}\n")
	f.Add("type: cron\nconfig: {schedule: '* * * * *', timezone: UTC}\n")
	f.Add("type: webhook\nmode: outbound\nconfig: {url: 'https://x', headers: {a: b}, retry: {max_attempts: 1}}\n")
	f.Fuzz(func(t *testing.T, connector string) {
		requireProjectOrProblems(t, newFiles("agents/ok.yaml", okAgent, "connectors/c.yaml", connector))
	})
}

func FuzzScript(f *testing.F) {
	f.Add("steps: [{turn: 1, match: 'a(b)', text: '${1}', tokens: {input: 1}}]")
	f.Add("steps:\n  - tool_calls: [{name: current_time, arguments: {a: 1}}]\n    delay: 1s\n    error: {status: 500}\n")
	f.Fuzz(func(t *testing.T, script string) {
		requireProjectOrProblems(t, newFiles("agents/ok.yaml", okAgent, "models/m.yaml", script))
	})
}

func FuzzSuite(f *testing.F) {
	f.Add("agent: ok\ncases: [{name: a, payload: {x: 1}, runs: 2, success_threshold: 0.5, expected_result: 'true'}]\n")
	f.Add("agent: ok\nmocks: {models: {scripted/m: {steps: [{text: hi}]}}}\ncases:\n- name: b\n  files: [files/a.txt]\n  context: {headers: {a: b}}\n")
	f.Add("agent: x\ncases: [null, 1, {mocks: {models: {a: b, c: [], d: {}}, tools: {t: {result: {}, error: e}}}, expected_tool_calls: [{}, {times: 0}]}]")
	f.Add("cases: &a [{name: a, expected_no_tool_calls: [y], approval_decisions: [*a]}]")
	f.Fuzz(func(t *testing.T, suite string) {
		requireProjectOrProblems(t, newFiles("agents/ok.yaml", okAgent, "tests/a/t.yaml", suite, "tests/files/a.txt", "hello"))
	})
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	_, _, err := bundle.Pack(newFiles("agents/ok.yaml", okAgent), &b)
	require.NoError(f, err)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, packed []byte) {
		sum := sha256.Sum256(packed)
		out, err := bundle.Unpack(bytes.NewReader(packed), "sha256:"+hex.EncodeToString(sum[:]))
		if err != nil {
			return
		}
		// An accepted bundle can be packed again.
		_, _, err = bundle.Pack(out, &bytes.Buffer{})
		require.NoError(t, err)
	})
}

// Each archive is either files that Parse can read, or an error about the archive. Run it with -fuzzminimizetime 10x: packing
// twice never covers exactly the same code, so Go would try for a minute to shorten each input that it finds.
func FuzzUpload(f *testing.F) {
	tarOf := func(name, content string) []byte {
		var b bytes.Buffer
		archive := tar.NewWriter(&b)
		require.NoError(f, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}))
		_, err := archive.Write([]byte(content))
		require.NoError(f, err)
		require.NoError(f, archive.Close())
		return b.Bytes()
	}
	f.Add(tarOf("./agents/ok.yaml", okAgent), false)
	f.Add(tarOf("../agents/ok.yaml", okAgent), true)
	f.Add(tarOf("agents//x/../ok.yaml", okAgent), true)
	f.Add(append(sparseFile("agents/ok.yaml", "1000"), make([]byte, 1024)...), true)
	f.Fuzz(func(t *testing.T, archive []byte, zstandard bool) {
		files, err := unpackUpload(packedAs(t, archive, zstandard))
		if err == nil {
			requireProjectOrProblems(t, files)
			return
		}
		require.True(t, errors.Is(err, bundle.ErrInvalid) || errors.Is(err, bundle.ErrTooLarge), "%v", err)
	})
}

// packedAs packs bytes by zstd or gzip.
func packedAs(t *testing.T, data []byte, zstandard bool) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if zstandard {
		z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstd.MinWindowSize))
		require.NoError(t, err)
		w = z
	}
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}
