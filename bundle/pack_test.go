// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/bundle"
)

func TestUnpack_ReadsPackedFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := bundle.Files{}
		for range rapid.IntRange(0, 8).Draw(t, "files") {
			name := rapid.StringMatching(`(agents|tools|tests)/[a-zé]{1,30}(/[a-z]{1,90}){0,2}\.star`).Draw(t, "name")
			in[name] = rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "data")
		}
		var first, second bytes.Buffer
		digest, size, err := bundle.Pack(in, &first)
		require.NoError(t, err)
		again, _, err := bundle.Pack(in, &second)
		require.NoError(t, err)
		require.Equal(t, digest, again)
		require.Equal(t, first.Bytes(), second.Bytes())
		require.EqualValues(t, first.Len(), size)
		require.Regexp(t, "^sha256:[0-9a-f]{64}$", digest)
		out, err := bundle.Unpack(&first, digest)
		require.NoError(t, err)
		require.Equal(t, in.Paths(), out.Paths())
		for name := range in {
			require.True(t, bytes.Equal(in[name], out[name]), name)
		}
	})
}

func TestOpen_ValidatesFiles(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	digest, _, err := bundle.Pack(newFiles("agents/ok.yaml", okAgent), &b)
	require.NoError(t, err)
	p, err := bundle.Open(bytes.NewReader(b.Bytes()), digest)
	require.NoError(t, err)
	require.NotNil(t, p.Agent("ok"))

	_, err = bundle.Open(bytes.NewReader(b.Bytes()), "sha256:"+strings.Repeat("0", 64))
	require.ErrorIs(t, err, bundle.ErrDigest)
}

func TestPack_RejectsFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/agents/x", "agents/../../x", "README.md", "agents/a\x00b", "agents//x", "agents/" + strings.Repeat("x", 300)} {
		_, _, err := bundle.Pack(newFiles(name, "x"), io.Discard)
		require.ErrorIs(t, err, bundle.ErrInvalid, name)
	}
}

// bundleOf packs tar entries without checks, like an attacker.
func bundleOf(t *testing.T, headers ...tar.Header) (packed []byte, digest string) {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	archive := tar.NewWriter(z)
	for _, h := range headers {
		require.NoError(t, archive.WriteHeader(&h))
		_, err := io.CopyN(archive, zeroReader{}, h.Size)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, z.Close())
	sum := sha256.Sum256(b.Bytes())
	return b.Bytes(), "sha256:" + hex.EncodeToString(sum[:])
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestUnpack_RejectsBundles(t *testing.T) {
	t.Parallel()
	regular := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}
	}
	for name, tt := range map[string]struct {
		headers []tar.Header
		want    error
	}{
		"symlink":  {[]tar.Header{{Typeflag: tar.TypeSymlink, Name: "agents/x", Linkname: "/etc/passwd"}}, bundle.ErrInvalid},
		"hardlink": {[]tar.Header{{Typeflag: tar.TypeLink, Name: "agents/x", Linkname: "agents/y"}}, bundle.ErrInvalid},
		"outside":  {[]tar.Header{regular("agents/../../x", 0)}, bundle.ErrInvalid},
		"absolute": {[]tar.Header{regular("/agents/x", 0)}, bundle.ErrInvalid},
		"twice":    {[]tar.Header{regular("agents/x", 0), regular("agents/x", 1)}, bundle.ErrInvalid},
		"bomb":     {[]tar.Header{regular("tests/files/x", 1<<30)}, bundle.ErrTooLarge},
		"many":     {[]tar.Header{regular("tests/files/x", 20<<20), regular("tests/files/y", 20<<20)}, bundle.ErrTooLarge},
		"code":     {[]tar.Header{regular("tools/x", 6<<20)}, bundle.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packed, digest := bundleOf(t, tt.headers...)
			_, err := bundle.Unpack(bytes.NewReader(packed), digest)
			require.ErrorIs(t, err, tt.want)
		})
	}
	_, err := bundle.Unpack(io.LimitReader(zeroReader{}, bundle.MaxSize+1), "")
	require.ErrorIs(t, err, bundle.ErrTooLarge)
}
