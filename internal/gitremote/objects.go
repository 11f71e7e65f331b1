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

// Bounds are what the objects of a pack may cost, whatever is in it.
type Bounds struct {
	// Objects is the most objects.
	Objects uint32
	// Object is the most bytes of one that is held, Folder of a commit or of one
	// folder's list.
	Object, Folder int64
	// Inflated is the most bytes of all of them, deltas counted with their results.
	Inflated int64
	// Work is the most bytes that are inflated again to resolve deltas and to read.
	Work int64
	// Cache is how many bytes are kept of which others are deltas.
	Cache int64
}

// Objects are the objects of a pack that a server sent. go-git's own storage
// holds what an object and the deltas below it inflate to, however much that is.
// This one never holds an object that is larger than Bounds.Object, by its declared
// size, and of the others three at most beside its cache.
type Objects struct {
	// Of the interface only reading is needed.
	storer.EncodedObjectStorer
	ctx     context.Context //nolint:containedctx // of the fetch; the interface has no place for it
	pack    io.ReadSeekCloser
	bounds  Bounds
	scanner *packfile.Scanner
	cache   *cache.BufferLRU
	byHash  map[plumbing.Hash]*packed
	work    int64 // bytes that may yet be inflated again
	// unknown are the deltas that would have to be resolved from, or to, objects
	// that are too large.
	unknown int
}

// packed is an object in the pack.
type packed struct {
	offset int64
	size   int64 // of the object, also where it is stored as a delta
	delta  int64 // of the delta, 0 for a whole object
	hash   plumbing.Hash
	kind   plumbing.ObjectType
	base   *packed // nil for a whole object
}

var errMalformed = errors.New("the server sent objects that cannot be read")

// OpenObjects indexes a pack, which Close closes.
func OpenObjects(ctx context.Context, pack io.ReadSeekCloser, bounds Bounds) (*Objects, error) {
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the received objects: %w", err)
	}
	o := &Objects{
		ctx: ctx, pack: pack, bounds: bounds, scanner: packfile.NewScanner(pack), cache: cache.NewBufferLRU(cache.FileSize(bounds.Cache)),
		byHash: map[plumbing.Hash]*packed{}, work: bounds.Work,
	}
	deltas, err := o.scan()
	if err != nil {
		return nil, err
	}
	return o, o.resolve(deltas)
}

// waiting are deltas whose base is not known yet, by its place or its hash.
type waiting struct {
	count    int
	byOffset map[int64][]*packed
	byHash   map[plumbing.Hash][]*packed
}

// scan reads the pack once from its beginning to its end, in a few buffers.
func (o *Objects) scan() (*waiting, error) {
	_, count, err := o.scanner.Header()
	if err != nil {
		return nil, fmt.Errorf("reading the received objects: %w", err)
	}
	if count > o.bounds.Objects {
		return nil, Remedy("the repository has %d objects to fetch, at most %d are taken; name a branch with less history or split the repository", count, o.bounds.Objects)
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
		// What is declared counts before anything is inflated.
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
	return Remedy("the objects of the repository are more than %d MiB when they are unpacked; split the repository", o.bounds.Inflated>>20)
}

// scanObject reads one object to find its hash, or, of a delta, its result's size.
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

// copyObject inflates the object whose header was read last. The scanner itself
// refuses more than is declared.
func (o *Objects) copyObject(w io.Writer, declared int64) error {
	n, _, err := o.scanner.NextObject(w)
	if err == nil && n != declared {
		err = errMalformed
	}
	return err
}

// prefixWriter keeps the beginning of what is written: two numbers.
type prefixWriter struct{ kept []byte }

// Write implements io.Writer.
func (w *prefixWriter) Write(p []byte) (int, error) {
	if left := 2*binary.MaxVarintLen64 - len(w.kept); left > 0 {
		w.kept = append(w.kept, p[:min(left, len(p))]...)
	}
	return len(p), nil
}

// resultSize reads what a delta declares its result to have.
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

// resolve finds the hashes of deltas, from their bases outward.
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
			e.base, e.kind = base, base.kind
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
	o.unknown = deltas.count // with what follows from them
	return nil
}

// content is an object's data, at most Bounds.Object; it must not be changed.
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
		// The size that is patched to was checked when the pack was scanned.
		if data, err = packfile.PatchDelta(data, delta); err != nil {
			return nil, fmt.Errorf("applying a delta: %w", err)
		}
		if err := o.spend(int64(len(data))); err != nil {
			return nil, err
		}
	}
	o.cache.Put(e.offset, data)
	return data, nil
}

// inflate reads what stands at an object's place: the object or its delta.
func (o *Objects) inflate(e *packed) ([]byte, error) {
	header, err := o.scanner.SeekObjectHeader(e.offset)
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	if err := o.spend(header.Length); err != nil {
		return nil, err
	}
	data := bytes.NewBuffer(make([]byte, 0, header.Length))
	err = o.copyObject(data, header.Length)
	return data.Bytes(), err
}

func (o *Objects) spend(bytes int64) error {
	if o.work -= bytes; o.work < 0 {
		return Remedy("reading the repository's objects takes more than %d MiB, for many are stored as changes of changes; run `git gc` where it lies", o.bounds.Work>>20)
	}
	return o.ctx.Err()
}

// EncodedObject implements storer.EncodedObjectStorer.
func (o *Objects) EncodedObject(kind plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	e, err := o.find(kind, hash)
	if err != nil {
		return nil, err
	}
	if e.kind != plumbing.BlobObject && e.size > o.bounds.Folder {
		return nil, Remedy("the repository has a folder or a commit of %d bytes, at most %d MiB are taken; spread the files over more folders", e.size, o.bounds.Folder>>20)
	}
	if e.size > o.bounds.Object {
		return nil, Remedy("the repository has a file of %d bytes, at most %d MiB are taken; remove it", e.size, o.bounds.Object>>20)
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
	e, err := o.find(plumbing.AnyObject, hash)
	if err != nil {
		return 0, err
	}
	return e.size, nil
}

func (o *Objects) find(kind plumbing.ObjectType, hash plumbing.Hash) (*packed, error) {
	e := o.byHash[hash]
	switch {
	case e == nil && o.unknown > 0:
		return nil, Remedy("object %s of the repository is a file of more than %d MiB, or is stored as a change of one; remove such files", hash, o.bounds.Object>>20)
	case e == nil, kind != plumbing.AnyObject && kind != e.kind:
		return nil, plumbing.ErrObjectNotFound
	}
	return e, nil
}

// Close ends reading.
func (o *Objects) Close() error { return o.pack.Close() }
