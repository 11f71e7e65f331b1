// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
)

// wide are the limits of a build.
var wide = Bounds{Objects: 500_000, Object: 25 << 20, Folder: 4 << 20, Inflated: 4 << 30, Work: 16 << 30, Cache: 32 << 20}

// packWriter writes a pack by hand, like a hostile server.
type packWriter struct {
	body  bytes.Buffer
	count uint32
}

// add writes an object's header with any declared size and its compressed data, and returns its
// offset.
func (w *packWriter) add(kind plumbing.ObjectType, declared uint64, reference, data []byte) int64 {
	at := int64(12 + w.body.Len())
	first := byte(kind)<<4 | byte(declared&15)
	for declared >>= 4; declared > 0; declared >>= 7 {
		w.body.WriteByte(first | 0x80)
		first = byte(declared & 0x7f)
	}
	w.body.WriteByte(first)
	w.body.Write(reference)
	z, _ := zlib.NewWriterLevel(&w.body, zlib.BestCompression)
	_, _ = z.Write(data)
	_ = z.Close()
	w.count++
	return at
}

func (w *packWriter) blob(data []byte) int64 {
	return w.add(plumbing.BlobObject, uint64(len(data)), nil, data)
}

// file returns the pack as a file with this number of objects in its header.
func (w *packWriter) file(t *testing.T, count uint32) *os.File {
	t.Helper()
	pack := binary.BigEndian.AppendUint32([]byte("PACK"), 2)
	pack = append(binary.BigEndian.AppendUint32(pack, count), w.body.Bytes()...)
	sum := sha1.Sum(pack)
	file, err := os.Create(filepath.Join(t.TempDir(), "pack"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	_, err = file.Write(append(pack, sum[:]...))
	require.NoError(t, err)
	return file
}

// patch is a delta that appends text to a base of this size.
func patch(base int, text string) []byte {
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(base)), uint64(base+len(text)))
	for from := 0; from < base; from += 0xffff {
		n := min(base-from, 0xffff)
		delta = append(delta, 0x80|0x0f|0x30, byte(from), byte(from>>8), byte(from>>16), byte(from>>24), byte(n), byte(n>>8))
	}
	return append(append(delta, byte(len(text))), text...)
}

// offset encodes the base of an OFS delta.
func offset(distance int64) []byte {
	out := []byte{byte(distance & 0x7f)}
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		out = append([]byte{byte(distance&0x7f) | 0x80}, out...)
	}
	return out
}

// A small pack with a huge object needs little memory, while it is indexed and while it is read.
// The test is not parallel, because it counts the allocations of the process.
func TestObjects_DoNotHoldLargeObjects(t *testing.T) {
	var w packWriter
	huge := make([]byte, 100<<20)
	w.blob(huge)
	hash := plumbing.ComputeHash(plumbing.BlobObject, huge)
	small := w.blob([]byte("small enough to be a base"))
	// A delta with a declared result of 3 GiB.
	lie := binary.AppendUvarint(binary.AppendUvarint(nil, 25), 3<<30)
	at := int64(12 + w.body.Len())
	w.add(plumbing.OFSDeltaObject, uint64(len(lie)), offset(at-small), lie)
	file := w.file(t, w.count)
	info, err := file.Stat()
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<20))
	var o *Objects
	memtest.AtMost(t, 4<<20, func() { o, err = OpenObjects(t.Context(), file, wide) })
	require.NoError(t, err)
	memtest.AtMost(t, 1<<20, func() { _, err = o.EncodedObject(plumbing.BlobObject, hash) })
	require.ErrorContains(t, err, "has a file of 104857600 bytes, the limit is 25 MiB")
	_, err = o.EncodedObject(plumbing.BlobObject, plumbing.NewHash(strings.Repeat("a", 40)))
	require.ErrorContains(t, err, "or a delta of one")
	size, err := o.EncodedObjectSize(hash)
	require.NoError(t, err)
	require.EqualValues(t, 100<<20, size)
}

func TestObjects_CheckDeclaredSizesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		write func(w *packWriter)
		count uint32
		want  string
	}{
		"one object":     {func(w *packWriter) { w.add(plumbing.BlobObject, 5<<30, nil, []byte("x")) }, 1, "the unpacked objects of the repository have more than 4096 MiB"},
		"negative":       {func(w *packWriter) { w.add(plumbing.BlobObject, 1<<63, nil, []byte("x")) }, 1, "reading object 1"},
		"many deltas":    {func(w *packWriter) { deltasTo(w, 1<<30, 5) }, 6, "the unpacked objects of the repository have more than 4096 MiB"},
		"endless":        {func(w *packWriter) { deltasTo(w, 1<<62, 1) }, 2, "the unpacked objects of the repository have more than 4096 MiB"},
		"count":          {func(w *packWriter) { w.blob([]byte("x")) }, 1<<32 - 1, "has 4294967295 objects to fetch, the limit is 500000"},
		"more than said": {func(w *packWriter) { w.add(plumbing.BlobObject, 10, nil, make([]byte, 1<<20)) }, 1, "exceeds declared size"},
		"less than said": {func(w *packWriter) { w.add(plumbing.BlobObject, 1<<20, nil, []byte("x")) }, 1, "cannot be read"},
		"no base":        {func(w *packWriter) { w.add(plumbing.REFDeltaObject, 5, make([]byte, 20), []byte{1, 1, 1, 'x', 0}) }, 1, "1 deltas have no base"},
	} {
		t.Run(name, func(t *testing.T) {
			var w packWriter
			tt.write(&w)
			file := w.file(t, tt.count)
			var err error
			memtest.AtMost(t, 4<<20, func() { _, err = OpenObjects(t.Context(), file, wide) }, name)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// deltasTo writes a base and deltas with declared results of this size.
func deltasTo(w *packWriter, size uint64, times int) {
	hash := plumbing.ComputeHash(plumbing.BlobObject, []byte("base"))
	w.blob([]byte("base"))
	for range times {
		delta := append(binary.AppendUvarint(binary.AppendUvarint(nil, 4), size), 1, 'x')
		w.add(plumbing.REFDeltaObject, uint64(len(delta)), hash[:], delta)
	}
}

// Deltas of both kinds are resolved, in long chains and in any order. Their cost is counted.
func TestObjects_ResolveDeltas(t *testing.T) {
	const depth, base = 1000, 16 << 10
	for _, byOffset := range []bool{true, false} {
		var w packWriter
		data := bytes.Repeat([]byte("0123456789abcdef"), base/16)
		type link struct{ reference, delta []byte }
		var links []link
		at := w.blob(data)
		want := []plumbing.Hash{plumbing.ComputeHash(plumbing.BlobObject, data)}
		for i := range depth {
			delta := patch(len(data), fmt.Sprintf("%04d", i))
			data = append(data, fmt.Sprintf("%04d", i)...)
			before := want[i]
			if want = append(want, plumbing.ComputeHash(plumbing.BlobObject, data)); byOffset {
				here := int64(12 + w.body.Len())
				at = w.add(plumbing.OFSDeltaObject, uint64(len(delta)), offset(here-at), delta)
			} else {
				links = append(links, link{before[:], delta})
			}
		}
		slices.Reverse(links) // bases come after their dependents
		for _, l := range links {
			w.add(plumbing.REFDeltaObject, uint64(len(l.delta)), l.reference, l.delta)
		}
		file := w.file(t, w.count)
		o, err := OpenObjects(t.Context(), file, wide)
		require.NoError(t, err)
		require.Len(t, o.byHash, depth+1)
		for _, i := range []int{0, depth / 2, depth} {
			got, err := o.EncodedObject(plumbing.BlobObject, want[i])
			require.NoError(t, err)
			require.EqualValues(t, base+4*i, got.Size())
		}
		o.work, o.cache = 0, cache.NewBufferLRU(cache.FileSize(wide.Cache))
		_, err = o.EncodedObject(plumbing.BlobObject, want[depth/3])
		require.ErrorContains(t, err, "takes more than 16384 MiB")

		ended, end := context.WithCancel(t.Context())
		end()
		_, err = OpenObjects(ended, file, wide)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// smallChain adds a blob and a chain of this many small deltas, and returns the hashes of all.
func smallChain(w *packWriter, deltas int) (hashes []plumbing.Hash) {
	text := []byte("x")
	base := w.blob(text)
	hashes = append(hashes, plumbing.ComputeHash(plumbing.BlobObject, text))
	for range deltas {
		delta := patch(len(text), "y")
		base = w.add(plumbing.OFSDeltaObject, uint64(len(delta)), offset(int64(12+w.body.Len())-base), delta)
		text = append(text, 'y')
		hashes = append(hashes, plumbing.ComputeHash(plumbing.BlobObject, text))
	}
	return hashes
}

// A delta costs time even if it has few bytes, and Git creates no chain of more than 4,095 deltas.
func TestObjects_BoundChains(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		deltas int
		work   int64
		want   string
	}{
		"as long as Git's": {maxDepth, 1 << 30, ""},
		"too long":         {maxDepth + 1, 1 << 30, "a chain of more than 4095 deltas"},
		"small deltas":     {300, 1 << 20, "takes more than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w packWriter
			smallChain(&w, tt.deltas)
			bounds := wide
			bounds.Work = tt.work
			_, err := OpenObjects(t.Context(), w.file(t, w.count), bounds)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorAs(t, err, new(RemedyError))
		})
	}
}

// Reading the end of a chain also caches the objects before it.
func TestObjects_CacheWholeChains(t *testing.T) {
	t.Parallel()
	var w packWriter
	hashes := smallChain(&w, 100)
	o, err := OpenObjects(t.Context(), w.file(t, w.count), wide)
	require.NoError(t, err)
	o.cache.Clear()
	_, err = o.EncodedObject(plumbing.BlobObject, hashes[100])
	require.NoError(t, err)
	left := o.work
	_, err = o.EncodedObject(plumbing.BlobObject, hashes[50])
	require.NoError(t, err)
	require.Equal(t, left, o.work)
}
