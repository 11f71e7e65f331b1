// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite_CompleteArchive(t *testing.T) {
	t.Parallel()
	spec := Spec{
		Name: "devcluster.local/pause:1", Entrypoint: []string{"/entrypoint"}, User: "65535:65535",
		Files: []File{{Path: "entrypoint", Mode: 0o755, Content: []byte("ELF")}},
	}
	var out, again bytes.Buffer
	require.NoError(t, Write(&out, spec))
	require.NoError(t, Write(&again, spec))
	require.Equal(t, out.Bytes(), again.Bytes())

	files := map[string][]byte{}
	for archive := tar.NewReader(&out); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		files[header.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"], &manifest))
	require.Equal(t, []string{"devcluster.local/pause:1"}, manifest[0].RepoTags)

	var config struct {
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(files[manifest[0].Config], &config))
	layer := files[manifest[0].Layers[0]]
	require.Equal(t, "sha256:"+hexDigest(layer), config.Rootfs.DiffIDs[0])

	inner := tar.NewReader(bytes.NewReader(layer))
	header, err := inner.Next()
	require.NoError(t, err)
	require.Equal(t, "entrypoint", header.Name)
	require.Equal(t, int64(0o755), header.Mode)
}
