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

// Media types of the archives of a folder that are read.
const (
	MediaGzip = "application/gzip"
	MediaZstd = "application/zstd"
)

// maxUnpacked is the most bytes of an archive of a folder, with what is passed over.
const maxUnpacked = 4 * MaxSize

// UnpackUpload reads the folders of the layout from an archive of a repository's folder, a tar
// packed by gzip or zstd, after verifying that its bytes have the digest. What lies outside the
// layout is passed over, as when a repository is read. Errors: ErrDigest, ErrInvalid,
// ErrTooLarge, which say what is wrong with the archive.
func UnpackUpload(packed []byte, digest string) (Files, error) {
	if len(packed) > MaxSize {
		return nil, ErrTooLarge
	}
	if err := checkDigest(packed, digest); err != nil {
		return nil, err
	}
	unpacked, err := decompressed(packed)
	if err != nil {
		return nil, err
	}
	defer unpacked.Close()
	bounded := &io.LimitedReader{R: unpacked, N: maxUnpacked}
	files, err := unpackTar(bounded, uploaded)
	if err == nil {
		if _, end := io.Copy(io.Discard, bounded); end != nil { // its end says whether all of it came
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
		return nil, fmt.Errorf("%w: the archive has no file in %s at its root; pack what is in the project's folder, and not the folder itself",
			ErrInvalid, strings.Join(layout, ", "))
	}
	return files, nil
}

// decompressed reads what is packed by gzip or zstd, which its first bytes tell.
func decompressed(packed []byte) (io.ReadCloser, error) {
	switch MediaOf(packed) {
	case MediaGzip:
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return z, nil
	case MediaZstd:
		return unzstd(packed)
	}
	return nil, fmt.Errorf("%w: it is packed neither by gzip nor by zstd", ErrInvalid)
}

// MediaOf says by what the beginning of bytes shows they are packed; "" for nothing known.
func MediaOf(start []byte) string {
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return MediaGzip
	case bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return MediaZstd
	}
	return ""
}

// uploaded admits what programs write that pack a folder. Only regular files of the layout
// are taken; a link among them is refused.
func uploaded(header *tar.Header) (string, error) {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return "", nil
	}
	name := path.Clean(header.Name)
	shown := printable(header.Name)
	if path.IsAbs(header.Name) || name == ".." || strings.HasPrefix(name, "../") {
		return "", fmt.Errorf("%w: %q is not a path inside the folder", ErrInvalid, shown)
	}
	root, _, _ := strings.Cut(name, "/")
	switch {
	case header.Typeflag == tar.TypeDir || !InLayout(root) || Hidden(name):
		return "", nil
	case header.Typeflag != tar.TypeReg:
		return "", fmt.Errorf("%w: %q is a link or a special file; replace it by a regular file", ErrInvalid, shown)
	}
	if msg := checkPath(name); msg != "" {
		return "", fmt.Errorf("%w: %q %s", ErrInvalid, shown, msg)
	}
	return name, nil
}
