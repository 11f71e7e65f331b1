// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// packFolder packs entries with gzip, like a third-party program.
func packFolder(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	archive := tar.NewWriter(z)
	for _, h := range headers {
		require.NoError(t, archive.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := io.CopyN(archive, zeroReader{}, h.Size)
			require.NoError(t, err)
		}
	}
	require.NoError(t, archive.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func unpackUpload(data []byte) (bundle.Files, error) {
	return bundle.UnpackUpload(data, digestOf(data))
}

func newEntry(kind byte, name string, size int64) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Size: size}
}

// An upload is read like a repository: files outside the layout and hidden files are ignored.
func TestUnpackUpload_ReadsLayout(t *testing.T) {
	t.Parallel()
	packed := packFolder(t,
		tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "of git archive"}},
		newEntry(tar.TypeDir, "./", 0), newEntry(tar.TypeDir, "./agents/", 0),
		newEntry(tar.TypeReg, "./agents/a.yaml", 3), newEntry(tar.TypeReg, "tests/files/b", 1<<20),
		newEntry(tar.TypeReg, "./agents/._a.yaml", 4), newEntry(tar.TypeReg, "agents/.idea/a.yaml", 4), newEntry(tar.TypeReg, "tools/.gitkeep", 0),
		newEntry(tar.TypeReg, "README.md", 5), newEntry(tar.TypeReg, ".git/config", 5),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "node_modules/x", Linkname: "/etc"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "agents/.#a.yaml", Linkname: "me@here"},
	)
	files, err := unpackUpload(packed)
	require.NoError(t, err)
	require.Equal(t, []string{"agents/a.yaml", "tests/files/b"}, files.Paths())
	require.Equal(t, []byte{0, 0, 0}, files["agents/a.yaml"])

	_, err = bundle.UnpackUpload(packed, "sha256:"+strings.Repeat("0", 64))
	require.ErrorIs(t, err, bundle.ErrDigest)

	var ours bytes.Buffer
	digest, _, err := bundle.Pack(bundle.Files{"agents/ok.yaml": []byte(okAgent)}, &ours)
	require.NoError(t, err)
	files, err = bundle.UnpackUpload(ours.Bytes(), digest)
	require.NoError(t, err, "a bundle is an upload too")
	require.Equal(t, okAgent, string(files["agents/ok.yaml"]))
}

func TestUnpackUpload_RejectsArchives(t *testing.T) {
	t.Parallel()
	agent := newEntry(tar.TypeReg, "agents/a.yaml", 1)
	many := make([]tar.Header, 0, 4*bundle.MaxFiles+1)
	for range cap(many) {
		many = append(many, newEntry(tar.TypeDir, "x/", 0))
	}
	cut := packFolder(t, agent)
	for name, tt := range map[string]struct {
		packed []byte
		want   error
		says   string
	}{
		"link":         {packFolder(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "agents/x", Linkname: "/etc/passwd"}), bundle.ErrInvalid, "is a link"},
		"hard link":    {packFolder(t, tar.Header{Typeflag: tar.TypeLink, Name: "agents/x", Linkname: "agents/y"}), bundle.ErrInvalid, "is a link"},
		"linked root":  {packFolder(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "agents", Linkname: "/etc"}), bundle.ErrInvalid, "is a link"},
		"device":       {packFolder(t, tar.Header{Typeflag: tar.TypeChar, Name: "tools/x"}), bundle.ErrInvalid, "special file"},
		"outside":      {packFolder(t, newEntry(tar.TypeReg, "agents/../../x", 1)), bundle.ErrInvalid, "not a path inside"},
		"far outside":  {packFolder(t, newEntry(tar.TypeReg, "../agents/x", 1)), bundle.ErrInvalid, "not a path inside"},
		"absolute":     {packFolder(t, newEntry(tar.TypeReg, "/agents/x", 1)), bundle.ErrInvalid, "not a path inside"},
		"odd name":     {packFolder(t, newEntry(tar.TypeReg, "agents/a\\b", 1)), bundle.ErrInvalid, "backslash"},
		"twice":        {packFolder(t, agent, newEntry(tar.TypeReg, "./agents/a.yaml", 1)), bundle.ErrInvalid, "twice"},
		"nested":       {packFolder(t, newEntry(tar.TypeReg, "project/agents/a.yaml", 1)), bundle.ErrInvalid, "not the folder itself"},
		"empty":        {packFolder(t), bundle.ErrInvalid, "no file in agents"},
		"too many":     {packFolder(t, many...), bundle.ErrTooLarge, "files and folders"},
		"bomb":         {packFolder(t, newEntry(tar.TypeReg, "tests/files/x", 200<<20)), bundle.ErrTooLarge, ""},
		"bomb outside": {packFolder(t, newEntry(tar.TypeReg, "x", 200<<20)), bundle.ErrTooLarge, "when it is unpacked"},
		"code":         {packFolder(t, newEntry(tar.TypeReg, "tools/x", 6<<20)), bundle.ErrTooLarge, "5242880"},
		"too large":    {make([]byte, bundle.MaxSize+1), bundle.ErrTooLarge, ""},
		"cut off":      {cut[:len(cut)-10], bundle.ErrInvalid, "unexpected EOF"},
		"no archive":   {[]byte("PK\x03\x04"), bundle.ErrInvalid, "neither gzip nor zstd"},
		"nothing":      {nil, bundle.ErrInvalid, "neither gzip nor zstd"},
		"no tar":       {gzipped(t, strings.Repeat("x", 2000)), bundle.ErrInvalid, "not a tar archive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := unpackUpload(tt.packed)
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}
