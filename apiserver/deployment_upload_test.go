// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// anUpload begins as an archive of type application/gzip does. The facade reads no further.
const anUpload = "\x1f\x8b {an archive}"

// uploaded uploads something that is answered with a deployment.
func (p *past) uploaded(t testing.TB, key, query, body string, headers ...string) Deployment {
	t.Helper()
	return p.deployed(t, key, "/deployments/upload?environment_id="+p.ids["environment"]+query, body, http.StatusCreated, headers...)
}

func (p *past) withoutGit(t testing.TB) {
	t.Helper()
	o := p.chosenProject(t)
	o.Spec.Git = nil
	require.NoError(t, p.client.Update(t.Context(), o))
}

func TestAFolderIsUploaded(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	w.withoutGit(t)
	key := w.key(t, nil)
	made := w.uploaded(t, key, "", anUpload)
	sum := sha256.Sum256([]byte(anUpload))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	require.Equal(t, DeploymentSource{Type: "upload", Digest: &digest}, made.Source)
	require.False(t, made.SkipTests)
	o := w.deploymentObject(t, made.ID)
	require.Nil(t, o.Spec.Source.Git)
	require.NoError(t, w.db.HasUpload(t.Context(), w.projectID, string(o.Spec.Source.Bundle.Digest)))
	require.Equal(t, made, w.shownDeployment(t, key, made.ID), "although the store has not heard of it")
	begun, err := w.begin(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, DeploymentSource{Type: "upload", Digest: &digest}, w.shownDeployment(t, key, made.ID).Source)
	body, err := w.db.OpenUpload(t.Context(), begun)
	require.NoError(t, err)
	bytes, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, anUpload, string(bytes))

	require.True(t, w.uploaded(t, key, "&skip_tests=true", anUpload).SkipTests)
	zstd := w.uploaded(t, key, "", "\x28\xb5\x2f\xfd", "Content-Type", "application/zstd")
	require.Equal(t, SourceType("upload"), zstd.Source.Type)

	p := requireCode(t, http.StatusBadRequest, httpserver.CodeNoGit, w.world, key, http.MethodPost, "/deployments?environment_id="+w.ids["environment"], "")
	require.Contains(t, p.Detail, "agentctl deploy --upload")
}

func TestAnUploadIsDeployedOnce(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	made := w.uploaded(t, key, "", anUpload, "Idempotency-Key", "k")
	require.Equal(t, made, w.uploaded(t, key, "", anUpload, "Idempotency-Key", "k"))
	for query, body := range map[string]string{"": anUpload + ", another", "&skip_tests=true": anUpload} {
		t.Run(query, func(t *testing.T) {
			requireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.world, key, http.MethodPost,
				"/deployments/upload?environment_id="+w.ids["environment"]+query, body, "Idempotency-Key", "k")
		})
	}
}

func TestUploadsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/deployments/upload?environment_id="+w.ids["environment"]
	ask := func(status int, code httpserver.Code, body, media string) {
		requireCode(t, status, code, w.world, key, http.MethodPost, path, body, "Content-Type", media)
	}
	ask(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, anUpload, "application/x-tar")
	ask(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, anUpload, "")
	ask(http.StatusUnprocessableEntity, httpserver.CodeInvalid, anUpload, "application/zstd")
	ask(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "\x1f", "application/gzip")
	ask(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "", "application/gzip")
	large := anUpload + strings.Repeat("x", store.MaxUpload)
	ask(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, large, "application/gzip")
	require.Equal(t, http.StatusRequestEntityTooLarge, w.stream(t, key, path, io.MultiReader(strings.NewReader(large))).Code, "also where no length says so")
	broken := w.stream(t, key, path, io.MultiReader(strings.NewReader(anUpload), failing{}))
	require.Equal(t, http.StatusBadRequest, broken.Code, broken.Body)
	require.Zero(t, w.rows(t, `uploads`))
	require.Zero(t, w.rows(t, `blobs WHERE mark = ''`))

	w.exec(t, `UPDATE projects SET storage = 1`)
	w.exec(t, `INSERT INTO stored_bytes (project_id, bytes) VALUES (?, 1) ON CONFLICT (project_id) DO UPDATE SET bytes = 1`, w.projectID.String())
	ask(http.StatusTooManyRequests, httpserver.CodeStorageFull, anUpload, "application/gzip")
}

// rows counts rows of the store.
func (w *world) rows(t testing.TB, of string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+of).Scan(&n))
	return n
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

// stream sends a body whose length is not known.
func (w *world) stream(t testing.TB, key, path string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/projects/"+w.projectID.String()+path, body)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/gzip")
	recorder := httptest.NewRecorder()
	w.server.Handler().ServeHTTP(recorder, request)
	return recorder
}

// TestUploadsOfAProjectHaveAPart: those that come in leave places for others'.
func TestUploadsOfAProjectHaveAPart(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/deployments/upload?environment_id="+w.ids["environment"]
	require.NoError(t, w.server.uploads.Take(w.projectID, maxUploads/uploadShare))
	requireCode(t, http.StatusTooManyRequests, httpserver.CodeRateLimited, w.world, key, http.MethodPost, path, anUpload)
	w.server.uploads.Give(w.projectID, maxUploads/uploadShare)
	w.uploaded(t, key, "", anUpload)
	require.Zero(t, w.server.uploads.Taken())
}

// TestAnUploadIsDeployedAgain: the same one, for as long as it is there.
func TestAnUploadIsDeployedAgain(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	w.withoutGit(t)
	key := w.key(t, nil)
	made := w.uploaded(t, key, "", anUpload)
	o := w.deploymentObject(t, made.ID)
	begun, err := w.begin(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, w.db.EndDeployment(t.Context(), begun, store.DeploymentFailed, store.FailureTests, "no"))
	for call, skips := range map[string]bool{"redeploy": false, "deploy-anyway": true} {
		t.Run(call, func(t *testing.T) {
			again := w.deployed(t, key, "/deployments/"+made.ID+"/"+call, "", http.StatusOK)
			require.Equal(t, made.ID, *again.RedeployOf)
			require.Equal(t, skips, again.SkipTests)
			require.Equal(t, o.Spec.Source, w.deploymentObject(t, again.ID).Spec.Source)
		})
	}
	w.exec(t, `DELETE FROM uploads`)
	for _, call := range []string{"redeploy", "deploy-anyway"} {
		p := requireCode(t, http.StatusConflict, httpserver.CodeUploadGone, w.world, key, http.MethodPost, "/deployments/"+made.ID+"/"+call, "")
		require.Contains(t, p.Detail, "30 days")
	}
	d, err := w.db.Deployment(t.Context(), begun)
	require.NoError(t, err)
	spec, err := specBefore(d, "production")
	require.NoError(t, err)
	require.Equal(t, o.Spec.Source, spec.Source, "the object is made again as it was")
}
