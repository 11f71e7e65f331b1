// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Media types of uploaded archives.
const (
	MediaGzip = "application/gzip"
	MediaZstd = "application/zstd"
)

// maxUnpacked is the maximum size of an uploaded archive in bytes, unpacked and with ignored files.
const maxUnpacked = 4 * MaxSize

// UnpackUpload returns the files of an uploaded archive after verifying its digest: a tar archive of a repository's
// folder, compressed with gzip or zstd. It ignores files outside the layout, like ReadFiles. Errors: ErrDigest,
// ErrInvalid, ErrTooLarge, with the reason.
func UnpackUpload(packed []byte, digest string) (Files, error) {
	if len(packed) > MaxSize {
		return nil, ErrTooLarge
	}
	if err := checkDigest(packed, digest); err != nil {
		return nil, err
	}
	unpacked, err := decompress(packed)
	if err != nil {
		return nil, err
	}
	defer unpacked.Close()
	bounded := &io.LimitedReader{R: unpacked, N: maxUnpacked}
	files, err := unpackTar(bounded, admitUploaded)
	if err == nil {
		if _, end := io.Copy(io.Discard, bounded); end != nil { // the checksum at the end
			err = fmt.Errorf("%w: %w", ErrInvalid, end)
		}
	}
	switch {
	case bounded.N <= 0:
		return nil, fmt.Errorf("%w: the archive is larger than %d MiB when it is unpacked", ErrTooLarge, maxUnpacked>>20)
	case errors.Is(err, tar.ErrHeader):
		return nil, fmt.Errorf("%w: it is not a tar archive", ErrInvalid)
	case err != nil:
		return nil, err
	case len(files) == 0:
		return nil, fmt.Errorf("%w: the archive has no file in %s at its root; pack the contents of the project's folder, not the folder itself",
			ErrInvalid, strings.Join(folderNames(), ", "))
	}
	return files, nil
}

// decompress returns a reader of gzip or zstd, which the first bytes identify.
func decompress(packed []byte) (io.ReadCloser, error) {
	switch MediaOf(packed) {
	case MediaGzip:
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return z, nil
	case MediaZstd:
		return openZstd(packed)
	}
	return nil, fmt.Errorf("%w: it is compressed with neither gzip nor zstd", ErrInvalid)
}

// MediaOf returns the media type that the first bytes of an archive identify, "" for any other.
func MediaOf(start []byte) string {
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return MediaGzip
	case bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return MediaZstd
	}
	return ""
}

// admitUploaded accepts the entries that archive programs write for a folder. It ignores entries outside the layout and
// rejects links inside.
func admitUploaded(header *tar.Header) (string, error) {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return "", nil
	}
	name := path.Clean(header.Name)
	shown := escapePath(header.Name)
	if path.IsAbs(header.Name) || name == ".." || strings.HasPrefix(name, "../") {
		return "", fmt.Errorf("%w: %q is not a path inside the folder", ErrInvalid, shown)
	}
	root, _, _ := strings.Cut(name, "/")
	switch {
	case header.Typeflag == tar.TypeDir || !IsLayoutFolder(root) || IsHidden(name):
		return "", nil
	case header.Typeflag != tar.TypeReg:
		return "", fmt.Errorf("%w: %q is a link or a special file; replace it by a regular file", ErrInvalid, shown)
	}
	if msg := checkPath(name); msg != "" {
		return "", fmt.Errorf("%w: %q %s", ErrInvalid, shown, msg)
	}
	return name, nil
}
