// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// digestPrefix is the start of each digest.
const digestPrefix = "sha256:"

// maxFraming is the maximum size of what tar adds to the contents: header and padding of each file, extended headers of
// long paths, and the end.
const maxFraming = MaxFiles*4096 + 4096

// maxEntries is the maximum number of entries in an archive, including folders and ignored entries.
const maxEntries = 4 * MaxFiles

var (
	// ErrDigest means that bytes do not have the digest that names them.
	ErrDigest = errors.New("bundle has another digest")
	// ErrInvalid means that bytes are not a bundle that Pack could have written.
	ErrInvalid = errors.New("not a valid bundle")
	// ErrTooLarge means that a bundle exceeds MaxSize.
	ErrTooLarge = fmt.Errorf("bundle is larger than %d MiB", MaxSize>>20)
)

// Pack writes files as a bundle. It returns the name of the bundle, "sha256:" and the SHA-256 of the bytes in hex, and its
// size in bytes. Equal files give equal bytes. Errors: ErrTooLarge, ErrInvalid for a path outside the layout, or an error
// of w.
func Pack(files Files, w io.Writer) (digest string, size int64, err error) {
	sum := sha256.New()
	counted := &counter{w: io.MultiWriter(w, sum)}
	z, err := zstd.NewWriter(counted, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return "", 0, fmt.Errorf("making a zstd encoder: %w", err)
	}
	archive := tar.NewWriter(z)
	for _, name := range files.Paths() {
		if msg := checkPath(name); msg != "" {
			return "", 0, fmt.Errorf("packing %q: %w: %s", name, ErrInvalid, msg)
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return "", 0, fmt.Errorf("packing %q: %w", name, err)
		}
		if _, err := archive.Write(files[name]); err != nil {
			return "", 0, fmt.Errorf("packing %q: %w", name, err)
		}
	}
	if err := errors.Join(archive.Close(), z.Close()); err != nil {
		return "", 0, fmt.Errorf("packing: %w", err)
	}
	return digestPrefix + hex.EncodeToString(sum.Sum(nil)), counted.n, nil
}

// counter writes at most MaxSize bytes.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.n > MaxSize {
		return 0, ErrTooLarge
	}
	return c.w.Write(p)
}

// Unpack returns the files of a bundle after verifying its digest. Errors: ErrDigest, ErrInvalid, ErrTooLarge, or an error
// of r.
func Unpack(r io.Reader, digest string) (Files, error) {
	packed, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading bundle: %w", err)
	}
	if len(packed) > MaxSize {
		return nil, ErrTooLarge
	}
	if err := checkDigest(packed, digest); err != nil {
		return nil, err
	}
	z, err := openZstd(packed)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return unpackTar(io.LimitReader(z, MaxSize+maxFraming), admitPacked)
}

func checkDigest(packed []byte, digest string) error {
	sum := sha256.Sum256(packed)
	if got := digestPrefix + hex.EncodeToString(sum[:]); got != digest {
		return fmt.Errorf("%w: want %s, got %s", ErrDigest, digest, got)
	}
	return nil
}

func openZstd(packed []byte) (io.ReadCloser, error) {
	z, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderMaxWindow(32<<20))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return z.IOReadCloser(), nil
}

// admission returns the path of an entry in an archive, "" for an entry to ignore, or an error for an entry that is not
// allowed.
type admission func(header *tar.Header) (name string, err error)

// admitPacked accepts only entries that Pack writes.
func admitPacked(header *tar.Header) (string, error) {
	if header.Typeflag != tar.TypeReg {
		return "", fmt.Errorf("%w: %q is not a regular file", ErrInvalid, escapePath(header.Name))
	}
	if msg := checkPath(header.Name); msg != "" {
		return "", fmt.Errorf("%w: %q %s", ErrInvalid, escapePath(header.Name), msg)
	}
	return header.Name, nil
}

// unpackTar returns the files of an archive. All archives are read by this function.
func unpackTar(r io.Reader, admit admission) (Files, error) {
	u := tarUnpacker{files: Files{}, folders: map[string]bool{}}
	archive := tar.NewReader(r)
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if entries >= maxEntries {
			return nil, fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, maxEntries)
		}
		name, err := admit(header)
		if err != nil {
			return nil, err
		}
		if name == "" || IsHidden(name) {
			continue
		}
		if err := u.checkEntry(name, header); err != nil {
			return nil, err
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("%w: reading %q: %w", ErrInvalid, name, err)
		}
		u.files[name] = data
	}
	var problems Problems
	if u.files.checkSizes(&problems); len(problems) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, problems)
	}
	return u.files, nil
}

// tarUnpacker holds the files of an archive that are read so far.
type tarUnpacker struct {
	files   Files
	folders map[string]bool // the folders of these files
	total   int64           // bytes
}

// checkEntry rejects a file that conflicts with the files read so far or exceeds a limit.
func (u *tarUnpacker) checkEntry(name string, header *tar.Header) error {
	if isSparse(header) {
		return fmt.Errorf("%w: %q is a sparse file; pack it without holes", ErrInvalid, name)
	}
	if _, double := u.files[name]; double {
		return fmt.Errorf("%w: %q appears twice", ErrInvalid, name)
	}
	both := u.folders[name]
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		u.folders[folder] = true
		_, isFile := u.files[folder]
		both = both || isFile
	}
	if both {
		return fmt.Errorf("%w: %q conflicts with another entry: one is a file and the other a folder", ErrInvalid, name)
	}
	if header.Size > MaxSize-u.total || len(u.files) >= MaxFiles {
		return ErrTooLarge
	}
	u.total += header.Size
	return nil
}

// isSparse reports whether a regular file has holes, which PAX headers describe. The size in its header is then larger
// than its data in the archive. No admission accepts the type of GNU's older sparse files.
func isSparse(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// Open unpacks and validates a bundle.
func Open(r io.Reader, digest string) (*Project, error) {
	files, err := Unpack(r, digest)
	if err != nil {
		return nil, err
	}
	return Parse(files)
}
