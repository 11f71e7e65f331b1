// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Bounds limit the cost of a pack's objects.
type Bounds struct {
	// Objects limits the number of objects.
	Objects uint32
	// Object limits the bytes of an object in memory, Folder the bytes of a commit or a folder's
	// list.
	Object, Folder int64
	// Inflated limits the bytes of all objects. Deltas count with their results.
	Inflated int64
	// Work limits the bytes that are inflated again to resolve deltas and to read.
	Work int64
	// Cache limits the bytes of cached delta bases.
	Cache int64
}

// Objects are the objects of a received pack. go-git's own storage keeps an object and all its
// deltas in memory without a limit. This storage never keeps an object larger than Bounds.Object,
// by its declared size, and at most three other objects in addition to its cache.
type Objects struct {
	// Only the reading methods of the interface are needed.
	storer.EncodedObjectStorer
	ctx     context.Context //nolint:containedctx // of the fetch; the interface has no place for it
	pack    io.ReadSeekCloser
	bounds  Bounds
	scanner *packfile.Scanner
	cache   *cache.BufferLRU
	byHash  map[plumbing.Hash]*packed
	work    int64 // remaining bytes to inflate again
	// unknown is the number of deltas with a base or a result that is too large.
	unknown int
}

// packed is an object in the pack.
type packed struct {
	offset int64
	size   int64 // size of the object, also if it is stored as a delta
	delta  int64 // size of the delta, 0 for a whole object
	hash   plumbing.Hash
	kind   plumbing.ObjectType
	base   *packed // nil for a whole object
	depth  int     // number of deltas down to a whole object
}

const (
	// maxDepth limits the deltas in a chain. Git itself creates no longer ones.
	maxDepth = 4095
	// readCost is what reading a stored object costs in addition to its bytes. It counts as Bounds.Work.
	readCost = 4 << 10
)

var errMalformed = errors.New("the server sent objects that cannot be read")

// OpenObjects indexes a pack. Close closes the pack.
func OpenObjects(ctx context.Context, pack io.ReadSeekCloser, bounds Bounds) (*Objects, error) {
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the received objects: %w", err)
	}
	o := &Objects{
		ctx: ctx, pack: pack, bounds: bounds, scanner: packfile.NewScanner(pack), cache: cache.NewBufferLRU(cache.FileSize(bounds.Cache)),
		byHash: map[plumbing.Hash]*packed{}, work: bounds.Work,
	}
	deltas, err := o.scanPack()
	if err != nil {
		return nil, err
	}
	return o, o.resolve(deltas)
}

// waiting are deltas whose base is not known yet, by its offset or its hash.
type waiting struct {
	count    int
	byOffset map[int64][]*packed
	byHash   map[plumbing.Hash][]*packed
}

// scanPack reads the pack once, with a few buffers.
func (o *Objects) scanPack() (*waiting, error) {
	_, count, err := o.scanner.Header()
	if err != nil {
		return nil, fmt.Errorf("reading the received objects: %w", err)
	}
	if count > o.bounds.Objects {
		return nil, Remedy("the repository has %d objects to fetch, the limit is %d; use a branch with less history or split the repository", count, o.bounds.Objects)
	}
	deltas := &waiting{byOffset: map[int64][]*packed{}, byHash: map[plumbing.Hash][]*packed{}}
	var total int64
	for number := range count {
		if err := o.ctx.Err(); err != nil {
			return nil, err
		}
		header, err := o.scanner.NextObjectHeader()
		if err != nil {
			return nil, fmt.Errorf("reading object %d: %w", number+1, err)
		}
		// The declared size counts before anything is inflated.
		if header.Length < 0 || header.Length > o.bounds.Inflated-total {
			return nil, o.errInflated()
		}
		total += header.Length
		e, err := o.scanObject(header, deltas)
		if err != nil {
			return nil, fmt.Errorf("reading object %d: %w", number+1, err)
		}
		if !header.Type.IsDelta() {
			continue
		}
		if e.size > o.bounds.Inflated-total {
			return nil, o.errInflated()
		}
		total += e.size
	}
	if _, err := o.scanner.Checksum(); err != nil {
		return nil, fmt.Errorf("reading the received objects: %w", err)
	}
	return deltas, nil
}

func (o *Objects) errInflated() error {
	return Remedy("the unpacked objects of the repository have more than %d MiB; split the repository", o.bounds.Inflated>>20)
}

// scanObject reads an object to get its hash, or for a delta the size of its result.
func (o *Objects) scanObject(header *packfile.ObjectHeader, deltas *waiting) (*packed, error) {
	e := &packed{offset: header.Offset, size: header.Length, kind: header.Type}
	if !header.Type.IsDelta() {
		hasher := plumbing.NewHasher(header.Type, header.Length)
		if err := o.copyObject(hasher, header.Length); err != nil {
			return nil, err
		}
		e.hash = hasher.Sum()
		o.byHash[e.hash] = e
		return e, nil
	}
	head := &prefixWriter{}
	if err := o.copyObject(head, header.Length); err != nil {
		return nil, err
	}
	size, err := resultSize(head.kept)
	if err != nil {
		return nil, err
	}
	e.size, e.delta = size, header.Length
	deltas.count++
	if header.Type == plumbing.OFSDeltaObject {
		deltas.byOffset[header.OffsetReference] = append(deltas.byOffset[header.OffsetReference], e)
	} else {
		deltas.byHash[header.Reference] = append(deltas.byHash[header.Reference], e)
	}
	return e, nil
}

// copyObject inflates the object of the last header. The scanner rejects more than the declared
// size.
func (o *Objects) copyObject(w io.Writer, declared int64) error {
	n, _, err := o.scanner.NextObject(w)
	if err == nil && n != declared {
		err = errMalformed
	}
	return err
}

// prefixWriter keeps the first bytes, which are two numbers.
type prefixWriter struct{ kept []byte }

// Write implements io.Writer.
func (w *prefixWriter) Write(p []byte) (int, error) {
	if left := 2*binary.MaxVarintLen64 - len(w.kept); left > 0 {
		w.kept = append(w.kept, p[:min(left, len(p))]...)
	}
	return len(p), nil
}

// resultSize reads the declared size of a delta's result.
func resultSize(delta []byte) (int64, error) {
	_, n := binary.Uvarint(delta)
	if n <= 0 {
		return 0, errMalformed
	}
	size, m := binary.Uvarint(delta[n:])
	if m <= 0 || size > math.MaxInt64 {
		return 0, errMalformed
	}
	return int64(size), nil
}

// resolve computes the hashes of deltas, starting with their bases.
func (o *Objects) resolve(deltas *waiting) error {
	stack := make([]*packed, 0, len(o.byHash))
	for _, e := range o.byHash {
		stack = append(stack, e)
	}
	for len(stack) > 0 {
		base := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		children := append(deltas.byOffset[base.offset], deltas.byHash[base.hash]...)
		delete(deltas.byOffset, base.offset)
		delete(deltas.byHash, base.hash)
		for _, e := range children {
			if base.size > o.bounds.Object || e.size > o.bounds.Object || e.delta > o.bounds.Object {
				o.unknown++
				continue
			}
			if e.base, e.kind, e.depth = base, base.kind, base.depth+1; e.depth > maxDepth {
				return Remedy("the repository has a chain of more than %d deltas; run `git gc` in the repository", maxDepth)
			}
			data, err := o.content(e)
			if err != nil {
				return fmt.Errorf("resolving deltas: %w", err)
			}
			e.hash = plumbing.ComputeHash(e.kind, data)
			o.byHash[e.hash] = e
			stack = append(stack, e)
			deltas.count--
		}
	}
	if deltas.count > 0 && o.unknown == 0 {
		return fmt.Errorf("%w: %d deltas have no base", errMalformed, deltas.count)
	}
	o.unknown = deltas.count // and their dependents
	return nil
}

// content returns an object's data, at most Bounds.Object. The caller must not change it.
func (o *Objects) content(e *packed) (data []byte, err error) {
	var chain []*packed
	for at := e; ; at = at.base {
		cached, ok := o.cache.Get(at.offset)
		if ok {
			data = cached
			break
		}
		if at.base == nil {
			if data, err = o.inflate(at); err != nil {
				return nil, err
			}
			break
		}
		chain = append(chain, at)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		delta, err := o.inflate(chain[i])
		if err != nil {
			return nil, err
		}
		// The size of the result was checked when the pack was scanned.
		if data, err = packfile.PatchDelta(data, delta); err != nil {
			return nil, fmt.Errorf("applying a delta: %w", err)
		}
		if err := o.countBytes(int64(len(data))); err != nil {
			return nil, err
		}
		o.cache.Put(chain[i].offset, data)
	}
	if len(chain) == 0 {
		o.cache.Put(e.offset, data)
	}
	return data, nil
}

// inflate returns the stored data of an object: the object or its delta.
func (o *Objects) inflate(e *packed) ([]byte, error) {
	header, err := o.scanner.SeekObjectHeader(e.offset)
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	if err := o.countBytes(readCost + header.Length); err != nil {
		return nil, err
	}
	data := bytes.NewBuffer(make([]byte, 0, header.Length))
	err = o.copyObject(data, header.Length)
	return data.Bytes(), err
}

func (o *Objects) countBytes(bytes int64) error {
	if o.work -= bytes; o.work < 0 {
		return Remedy("reading the repository's objects takes more than %d MiB, because of long delta chains; run `git gc` in the repository", o.bounds.Work>>20)
	}
	return o.ctx.Err()
}

// EncodedObject implements storer.EncodedObjectStorer.
func (o *Objects) EncodedObject(kind plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	e, err := o.findObject(kind, hash)
	if err != nil {
		return nil, err
	}
	if e.kind != plumbing.BlobObject && e.size > o.bounds.Folder {
		return nil, Remedy("the repository has a folder or a commit of %d bytes, the limit is %d MiB; spread the files over more folders", e.size, o.bounds.Folder>>20)
	}
	if e.size > o.bounds.Object {
		return nil, Remedy("the repository has a file of %d bytes, the limit is %d MiB; remove it", e.size, o.bounds.Object>>20)
	}
	data, err := o.content(e)
	if err != nil {
		return nil, err
	}
	out := &plumbing.MemoryObject{}
	out.SetType(e.kind)
	if _, err := out.Write(data); err != nil {
		return nil, fmt.Errorf("copying an object: %w", err)
	}
	return out, nil
}

// EncodedObjectSize implements storer.EncodedObjectStorer.
func (o *Objects) EncodedObjectSize(hash plumbing.Hash) (int64, error) {
	e, err := o.findObject(plumbing.AnyObject, hash)
	if err != nil {
		return 0, err
	}
	return e.size, nil
}

func (o *Objects) findObject(kind plumbing.ObjectType, hash plumbing.Hash) (*packed, error) {
	e := o.byHash[hash]
	switch {
	case e == nil && o.unknown > 0:
		return nil, Remedy("object %s of the repository is a file of more than %d MiB, or a delta of one; remove such files", hash, o.bounds.Object>>20)
	case e == nil, kind != plumbing.AnyObject && kind != e.kind:
		return nil, plumbing.ErrObjectNotFound
	}
	return e, nil
}

// Close closes the pack.
func (o *Objects) Close() error { return o.pack.Close() }
