// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// storeUpload stores an upload with this content and returns its digest.
func (w *world) storeUpload(content string) string {
	u, err := w.s.PutUpload(w.ctx, w.project.ID, strings.NewReader(content), 1<<20)
	w.NoError(err)
	sum := sha256.Sum256([]byte(content))
	w.Equal(store.Upload{Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}, u)
	return u.Digest
}

// newUploaded returns a deployment of an upload.
func (w *world) newUploaded(name, digest string) store.DeploymentSpec {
	spec := w.newDeployment(name)
	spec.SourceType, spec.UploadDigest, spec.Branch, spec.Commit = "upload", digest, "", ""
	return spec
}

// beginUploaded begins a deployment of an upload.
func (w *world) beginUploaded(name, digest string) store.Key {
	d := w.beginDeployment(w.newUploaded(name, digest))
	w.Equal("upload", d.SourceType)
	w.Equal(digest, d.UploadDigest)
	return d.Key()
}

// uploadsAge makes uploads and their blobs older.
func (w *world) uploadsAge(by int64) {
	w.updateRows(`UPDATE uploads SET kept_until = kept_until - $2`, by)
	w.updateRows(`UPDATE bundles SET kept_until = kept_until - $2`, by)
	w.updateRows(`UPDATE blobs SET created_at = created_at - $2`, by)
}

// sweepUploads sweeps until nothing is left, and checks that no upload is half deleted.
func (w *world) sweepUploads() {
	for n := 1; n > 0; {
		n = w.sweepExpired(10)
	}
	w.Zero(w.queryCount(`SELECT count(*) FROM blobs b WHERE project_id = $1 AND mark = 'upload'
		AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.project_id = b.project_id AND u.blob_id = b.id)`))
	w.Zero(w.queryCount(`SELECT count(*) FROM blobs b WHERE project_id = $1 AND mark = 'bundle'
		AND NOT EXISTS (SELECT 1 FROM bundles u WHERE u.project_id = b.project_id AND u.blob_id = b.id)`))
	w.Zero(w.queryCount(`SELECT count(*) FROM uploads u WHERE project_id = $1
		AND NOT EXISTS (SELECT 1 FROM blobs b WHERE u.project_id = b.project_id AND u.blob_id = b.id AND mark = 'upload')`))
}

// brokenOff reads some bytes and then fails.
type brokenOff struct {
	io.Reader
	err error
}

func (b brokenOff) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

var uploadPromises = []promise{
	{"an upload is read by its deployment", func(w *world) {
		content := variedText(2*store.BlobChunk + 1)
		digest := w.storeUpload(content)
		w.NoError(w.s.HasUpload(w.ctx, w.project.ID, digest))
		w.ErrorIs(w.s.HasUpload(w.ctx, uuid.New(), digest), store.ErrNotFound)
		w.ErrorIs(w.s.HasUpload(w.ctx, w.project.ID, "sha256:none"), store.ErrNotFound)
		mine := w.beginUploaded("one", digest)
		r, err := w.s.OpenUpload(w.ctx, mine)
		w.Equal(content, string(w.readAll(r, err)))
		d := w.deployment(mine.ID)
		w.Equal(digest, d.UploadDigest)
		w.Equal("upload", d.SourceType)

		git := w.newDeployment("two")
		_, err = w.s.BeginDeployment(w.ctx, git)
		w.NoError(err)
		for _, key := range []store.Key{git.Key(), w.beginUploaded("three", "sha256:none"), w.key(uuid.New()), {ProjectID: uuid.New(), ID: mine.ID}} {
			w.ErrorIs(errorOf(w.s.OpenUpload(w.ctx, key)), store.ErrNotFound)
		}
	}},
	{"an incomplete upload leaves nothing", func(w *world) {
		gone := errors.New("the client has gone")
		for _, content := range []string{"", "some", variedText(store.BlobChunk + 1)} {
			w.ErrorIs(errorOf(w.s.PutUpload(w.ctx, w.project.ID, brokenOff{strings.NewReader(content), gone}, 1<<20)), gone)
			w.ErrorIs(errorOf(w.s.PutUpload(w.ctx, w.project.ID, strings.NewReader(content+"more"), int64(len(content)))), store.ErrTooLarge)
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`))
		w.Zero(w.queryCount(`SELECT count(*) FROM uploads WHERE project_id = $1`))
		w.Zero(w.storedBytes())
	}},
	{"an upload is stored and counted once, until it is deleted", func(w *world) {
		before := w.storedBytes()
		w.Equal(w.storeUpload("content"), w.storeUpload("content"))
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`))
		w.Equal(before+int64(len("content")), w.storedBytes())
		w.uploadsAge(store.UploadAge.Microseconds() + 1)
		w.sweepUploads()
		w.Equal(before, w.storedBytes())
		w.Zero(w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`))
	}},
	{"a project with full storage uploads nothing", func(w *world) {
		w.storeUpload("content")
		p := w.project
		p.Limits.Storage = int64(len("content"))
		p.Ref.Generation++
		w.NoError(w.s.PutProject(w.ctx, p))
		_, err := w.s.PutUpload(w.ctx, w.project.ID, strings.NewReader("more"), 1<<20)
		var full *store.StorageFullError
		w.ErrorAs(err, &full)
		w.Equal(store.StorageFullError{Stored: p.Limits.Storage, Limit: p.Limits.Storage}, *full)
	}},
	{"an upload without a deployment is deleted after a day", func(w *world) {
		named, unnamed := w.storeUpload("named"), w.storeUpload("unnamed")
		deployment := w.beginUploaded("one", named)
		w.uploadsAge(store.UploadAge.Microseconds() - 60e6)
		w.sweepUploads()
		w.NoError(w.s.HasUpload(w.ctx, w.project.ID, unnamed))
		w.uploadsAge(61e6)
		w.sweepUploads()
		w.ErrorIs(w.s.HasUpload(w.ctx, w.project.ID, unnamed), store.ErrNotFound)
		r, err := w.s.OpenUpload(w.ctx, deployment)
		w.Equal("named", string(w.readAll(r, err)))
	}},
	{"an upload is kept from the last beginning of its deployment", func(w *world) {
		digest := w.storeUpload("content")
		w.beginUploaded("one", digest)
		w.uploadsAge(store.UploadKept.Microseconds() - 60e6)
		last := w.beginUploaded("two", digest)
		w.storeUpload("content") // a day is shorter, and shortens nothing
		w.uploadsAge(store.UploadKept.Microseconds() - 60e6)
		w.sweepUploads()
		w.NoError(w.s.HasUpload(w.ctx, w.project.ID, digest))
		_, err := w.s.BeginDeployment(w.ctx, func() store.DeploymentSpec { // a repeated begin keeps nothing
			spec := w.newUploaded("two", digest)
			spec.ID = last.ID
			return spec
		}())
		w.NoError(err)
		w.uploadsAge(61e6)
		w.sweepUploads()
		w.ErrorIs(errorOf(w.s.OpenUpload(w.ctx, last)), store.ErrNotFound)
		w.Zero(w.queryCount(`SELECT count(*) FROM blob_chunks WHERE project_id = $1`))
	}},
	{"an upload is kept while its deployment is live", func(w *world) {
		live, before := w.storeUpload("live"), w.storeUpload("before")
		activate := func(name, digest string) {
			spec := w.newUploaded(name, digest)
			w.startBuild(spec)
			w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), w.buildResult("bundle of "+name, "first")))
			w.activateWith(store.Activation{Deployment: spec.Key()})
		}
		activate("one", before)
		activate("two", live)
		for range 3 {
			w.uploadsAge(store.UploadKept.Microseconds() + 1)
			w.sweepUploads()
			w.NoError(w.s.HasUpload(w.ctx, w.project.ID, live))
			w.ErrorIs(w.s.HasUpload(w.ctx, w.project.ID, before), store.ErrNotFound)
		}
		activate("three", w.storeUpload("next"))
		w.uploadsAge(store.UploadKept.Microseconds() + 1)
		w.sweepUploads()
		w.ErrorIs(w.s.HasUpload(w.ctx, w.project.ID, live), store.ErrNotFound)
	}},
}
