// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// endless returns a beginning that is followed by a text that repeats forever.
func endless(begin, text string) io.Reader {
	return io.MultiReader(strings.NewReader(begin), &repeater{text: text})
}

type repeater struct {
	text string
	at   int
}

// Read implements io.Reader.
func (r *repeater) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.at]
		r.at = (r.at + 1) % len(r.text)
	}
	return len(p), nil
}

type nopWriter struct{ io.Writer }

func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) Close() error                { return nil }

func packet(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }

const anyHash = "0123456789012345678901234567890123456789"

// Refs and the data before the objects are limited over both protocols.
func TestSession_LimitsServerData(t *testing.T) {
	t.Parallel()
	first := packet(anyHash + " HEAD\x00shallow\n")
	ref := packet(anyHash + " refs/heads/0\n")
	want := packp.NewUploadPackRequest()
	want.Wants = []plumbing.Hash{plumbing.NewHash(anyHash)}
	want.Depth = packp.DepthCommits(1)
	require.NoError(t, want.Capabilities.Set(capability.Shallow))
	shallow := packet("shallow " + anyHash)

	s := &sshSession{stdout: &Bounded{R: endless(first, ref)}}
	_, err := s.Refs(t.Context())
	require.ErrorContains(t, err, "list of branches and tags is larger than 10 MiB")
	s = &sshSession{stdin: nopWriter{}, stdout: &Bounded{R: endless("", shallow)}}
	_, err = s.Pack(t.Context(), want)
	require.ErrorContains(t, err, "sends more than 1 MiB before the objects")

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, text := packet("# service=git-upload-pack\n")+"0000"+first, ref
		if r.Method == http.MethodPost {
			begin, text = "", shallow
		}
		_, _ = io.Copy(w, endless(begin, text))
	}))
	t.Cleanup(server.Close)
	allowed, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	r, err := New(server.URL+"/repo.git", Folder(""), egress.New(allowed))
	require.NoError(t, err)
	over, err := r.Connect(t.Context())
	require.NoError(t, err)
	_, err = over.Refs(t.Context())
	require.ErrorContains(t, err, "list of branches and tags is larger than 10 MiB")
	_, err = over.Pack(t.Context(), want)
	require.ErrorContains(t, err, "sends more than 1 MiB before the objects")
}
