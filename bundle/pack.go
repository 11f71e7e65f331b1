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

// digestPrefix begins every digest.
const digestPrefix = "sha256:"

// maxFraming is what tar adds to the contents at most: header and padding of
// each file, extended headers of long paths, the end.
const maxFraming = MaxFiles*4096 + 4096

// maxEntries is the most entries of an archive: files, folders, and what is passed over.
const maxEntries = 4 * MaxFiles

var (
	// ErrDigest says that bytes do not have the digest that names them.
	ErrDigest = errors.New("bundle has another digest")
	// ErrInvalid says that bytes are no bundle that Pack could have made.
	ErrInvalid = errors.New("not a valid bundle")
	// ErrTooLarge says that a bundle exceeds MaxSize.
	ErrTooLarge = fmt.Errorf("bundle is larger than %d MiB", MaxSize>>20)
)

// Pack writes files as a bundle and returns its name, "sha256:" and the
// SHA-256 of the bytes in hex, and its size in bytes. Equal files give equal bytes.
// Errors: ErrTooLarge, ErrInvalid for a path outside the layout, or w's.
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

// counter passes at most MaxSize bytes.
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

// Unpack reads the files of a bundle after verifying that its bytes have the
// digest. Errors: ErrDigest, ErrInvalid, ErrTooLarge, or r's.
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
	z, err := unzstd(packed)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return unpackTar(io.LimitReader(z, MaxSize+maxFraming), packedByUs)
}

func checkDigest(packed []byte, digest string) error {
	sum := sha256.Sum256(packed)
	if got := digestPrefix + hex.EncodeToString(sum[:]); got != digest {
		return fmt.Errorf("%w: want %s, got %s", ErrDigest, digest, got)
	}
	return nil
}

func unzstd(packed []byte) (io.ReadCloser, error) {
	z, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderMaxWindow(32<<20))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return z.IOReadCloser(), nil
}

// admission says which path an entry of an archive has, "" of one that is passed over, and
// what is wrong with it.
type admission func(header *tar.Header) (name string, err error)

// packedByUs admits what Pack writes, and nothing else.
func packedByUs(header *tar.Header) (string, error) {
	if header.Typeflag != tar.TypeReg {
		return "", fmt.Errorf("%w: %q is not a regular file", ErrInvalid, printable(header.Name))
	}
	if msg := checkPath(header.Name); msg != "" {
		return "", fmt.Errorf("%w: %q %s", ErrInvalid, printable(header.Name), msg)
	}
	return header.Name, nil
}

// unpackTar reads the files of an archive. It is the only reader of archives, whoever made them.
func unpackTar(r io.Reader, admit admission) (Files, error) {
	u := unpacking{files: Files{}, folders: map[string]bool{}}
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
		if name == "" || Hidden(name) {
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

// unpacking is what was read of an archive so far.
type unpacking struct {
	files   Files
	folders map[string]bool // that the files are in
	total   int64           // bytes
}

// checkEntry refuses a file that cannot be among those that were read.
func (u *unpacking) checkEntry(name string, header *tar.Header) error {
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
		return fmt.Errorf("%w: %q and another entry give one path to a file and a folder", ErrInvalid, name)
	}
	if header.Size > MaxSize-u.total || len(u.files) >= MaxFiles {
		return ErrTooLarge
	}
	u.total += header.Size
	return nil
}

// isSparse says whether a file of the regular type has holes, as PAX writes them: its size is then
// what its header says, and not what the archive holds of it. The type of GNU's older sparse files
// is none that an admission takes.
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
