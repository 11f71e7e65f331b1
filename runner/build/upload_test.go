// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/build"
)

// packed returns an upload of the files and its digest.
func packed(t *testing.T, files bundle.Files) ([]byte, string) {
	t.Helper()
	var b bytes.Buffer
	digest, _, err := bundle.Pack(files, &b)
	require.NoError(t, err)
	return b.Bytes(), digest
}

// An upload has no folder and no commit. Everything else is the same.
func TestPack_BuildsUpload(t *testing.T) {
	t.Parallel()
	data, digest := packed(t, bundle.Files{"agents/ok.yaml": []byte(okAgent)})
	d := &desk{uploaded: data}
	require.NoError(t, build.Pack(t.Context(), build.PackOptions{Upload: digest, Dispatch: d}))
	require.Equal(t, []dispatchapi.BuildReport{{Phase: "packing"}}, d.reports)
	require.Len(t, d.results, 1)
	require.Empty(t, d.results[0].FailureReason)
	require.Equal(t, "ok", d.results[0].Agents[0].Name)
	require.Contains(t, d.bundles, d.results[0].BundleDigest)
	require.Contains(t, d.text(), "fetching the upload, "+digest)
	require.Contains(t, d.text(), "valid; agents: 1")
}

func TestPack_RejectsInvalidUploads(t *testing.T) {
	t.Parallel()
	wrong, digest := packed(t, bundle.Files{"agents/ok.yaml": []byte("name: ok\nmodle: openai/x\n")})
	for name, tt := range map[string]struct {
		d      *desk
		digest string
		want   string
	}{
		"gone":       {&desk{fetching: dispatchapi.ErrRejected}, digest, "upload the folder again"},
		"YAML":       {&desk{uploaded: wrong}, digest, `agents/ok.yaml:2:1: unknown key "modle"`},
		"no archive": {&desk{}, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "neither gzip nor zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, build.Pack(t.Context(), build.PackOptions{Upload: tt.digest, Dispatch: tt.d}))
			require.Len(t, tt.d.results, 1)
			require.Equal(t, dispatchapi.FailureBuild, tt.d.results[0].FailureReason)
			require.Contains(t, tt.d.results[0].Message, tt.want)
			require.Contains(t, tt.d.text(), tt.want)
			require.Empty(t, tt.d.bundles)
		})
	}
	for _, d := range []*desk{{fetching: errors.New("away")}, {uploaded: []byte("another")}, {fetching: dispatchapi.ErrFenced}} {
		err := build.Pack(t.Context(), build.PackOptions{Upload: digest, Dispatch: d})
		require.Empty(t, d.results, "it is not the uploader's fault")
		require.Equal(t, errors.Is(d.fetching, dispatchapi.ErrFenced), err == nil, "the Job tries again: %v", err)
	}
}
