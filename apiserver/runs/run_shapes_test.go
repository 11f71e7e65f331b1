// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// An empty output differs from a missing output.
func TestGetRun_ShowsEmptyOutput(t *testing.T) {
	t.Parallel()
	empty := ""
	for name, c := range map[string]struct {
		run           store.Run
		output, error *string
	}{
		"completed without output":     {store.Run{Status: store.RunCompleted}, &empty, nil},
		"completed":                    {store.Run{Status: store.RunCompleted, Output: "x", FinishReason: "length"}, rest.Optional("x"), nil},
		"failed":                       {store.Run{Status: store.RunFailed, Error: "why", ErrorCode: "code"}, nil, rest.Optional("why")},
		"failed without an error text": {store.Run{Status: store.RunFailed, ErrorCode: "code"}, nil, rest.Optional("code")},
		"queued":                       {store.Run{Status: store.RunQueued}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			shown := showRun(c.run)
			require.Equal(t, c.output, shown.Output)
			require.Equal(t, c.error, shown.Error)
			require.Equal(t, rest.Optional(string(c.run.ErrorCode)), shown.ErrorCode)
			require.Equal(t, rest.Optional(c.run.FinishReason), shown.FinishReason)
			require.NotNil(t, shown.Traces)
			require.NotNil(t, shown.Logs)
			require.NotNil(t, shown.SavedFiles)
		})
	}
}

func TestDisposition_QuotesNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"invoice.pdf": "invoice.pdf", "../../etc/passwd": "passwd", `C:\x\a.txt`: "a.txt", "": "file-3", "..": "file-3", "a/": "file-3",
		"a\r\nSet-Cookie: b": "a__Set-Cookie_ b", "\xff.txt": "_.txt", `"; filename=evil.exe`: "_; filename=evil.exe", "Überblick 1.txt": "Überblick 1.txt",
		"a\u202egpj.exe": "a_gpj.exe", ".bashrc": "bashrc",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, downloadName(name, "file-3"), "%q", name)
		})
	}
}
