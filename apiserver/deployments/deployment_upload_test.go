// SPDX-License-Identifier: Apache-2.0

package deployments_test

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
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// uploadDeployment uploads something that is answered with a deployment.
func uploadDeployment(t testing.TB, p *apiservertest.ProjectWithHistory, key, query, body string, headers ...string) deployments.Deployment {
	t.Helper()
	return p.CreateDeployment(t, key, "/deployments/upload?environment_id="+p.IDs["environment"]+query, body, http.StatusCreated, headers...)
}

func removeGit(t testing.TB, p *apiservertest.ProjectWithHistory) {
	t.Helper()
	o := p.ProjectObject(t)
	o.Spec.Git = nil
	require.NoError(t, p.Client.Update(t.Context(), o))
}

func TestUploadDeployment_DeploysFolder(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	removeGit(t, w)
	key := w.CreateKey(t, nil)
	made := uploadDeployment(t, w, key, "", apiservertest.Upload)
	sum := sha256.Sum256([]byte(apiservertest.Upload))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	require.Equal(t, deployments.DeploymentSource{Type: "upload", Digest: &digest}, made.Source)
	require.False(t, made.SkipTests)
	o := w.DeploymentObject(t, made.ID)
	require.Nil(t, o.Spec.Source.Git)
	require.NoError(t, w.Store.HasUpload(t.Context(), w.ProjectID, string(o.Spec.Source.Bundle.Digest)))
	require.Equal(t, made, w.GetDeployment(t, key, made.ID), "although the store has not heard of it")
	begun, err := w.RecordDeployment(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, deployments.DeploymentSource{Type: "upload", Digest: &digest}, w.GetDeployment(t, key, made.ID).Source)
	body, err := w.Store.OpenUpload(t.Context(), begun)
	require.NoError(t, err)
	bytes, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, apiservertest.Upload, string(bytes))

	require.True(t, uploadDeployment(t, w, key, "&skip_tests=true", apiservertest.Upload).SkipTests)
	zstd := uploadDeployment(t, w, key, "", "\x28\xb5\x2f\xfd", "Content-Type", "application/zstd")
	require.Equal(t, deployments.SourceType("upload"), zstd.Source.Type)

	p := apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeNoGit, w.Project, key, http.MethodPost, "/deployments?environment_id="+w.IDs["environment"], "")
	require.Contains(t, p.Detail, "agentctl deploy --upload")
}

func TestUploadDeployment_RespectsIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	made := uploadDeployment(t, w, key, "", apiservertest.Upload, "Idempotency-Key", "k")
	require.Equal(t, made, uploadDeployment(t, w, key, "", apiservertest.Upload, "Idempotency-Key", "k"))
	for query, body := range map[string]string{"": apiservertest.Upload + ", another", "&skip_tests=true": apiservertest.Upload} {
		t.Run(query, func(t *testing.T) {
			apiservertest.RequireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.Project, key, http.MethodPost,
				"/deployments/upload?environment_id="+w.IDs["environment"]+query, body, "Idempotency-Key", "k")
		})
	}
}

func TestUploadDeployment_RejectsInvalidUploads(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/deployments/upload?environment_id="+w.IDs["environment"]
	ask := func(status int, code httpserver.Code, body, media string) {
		apiservertest.RequireCode(t, status, code, w.Project, key, http.MethodPost, path, body, "Content-Type", media)
	}
	ask(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, apiservertest.Upload, "application/x-tar")
	ask(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, apiservertest.Upload, "")
	ask(http.StatusUnprocessableEntity, httpserver.CodeInvalid, apiservertest.Upload, "application/zstd")
	ask(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "\x1f", "application/gzip")
	ask(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "", "application/gzip")
	large := apiservertest.Upload + strings.Repeat("x", store.MaxUpload)
	ask(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, large, "application/gzip")
	require.Equal(t, http.StatusRequestEntityTooLarge, sendStream(t, w.Project, key, path, io.MultiReader(strings.NewReader(large))).Code, "also where no length says so")
	broken := sendStream(t, w.Project, key, path, io.MultiReader(strings.NewReader(apiservertest.Upload), failing{}))
	require.Equal(t, http.StatusBadRequest, broken.Code, broken.Body)
	cut := sendStream(t, w.Project, key, path, io.MultiReader(strings.NewReader(apiservertest.Upload), iotest.ErrReader(io.ErrUnexpectedEOF)))
	require.Equal(t, http.StatusBadRequest, cut.Code, "a body that is cut off does not end there")
	require.Zero(t, countRows(t, w.Project, `uploads`))
	require.Zero(t, countRows(t, w.Project, `blobs WHERE mark = ''`))

	w.ExecuteSQL(t, `UPDATE projects SET storage = 1`)
	w.ExecuteSQL(t, `INSERT INTO stored_bytes (project_id, bytes) VALUES (?, 1) ON CONFLICT (project_id) DO UPDATE SET bytes = 1`, w.ProjectID.String())
	ask(http.StatusTooManyRequests, httpserver.CodeStorageFull, apiservertest.Upload, "application/gzip")
}

// countRows counts rows of the store.
func countRows(t testing.TB, w *apiservertest.Project, of string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.StorePath+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+of).Scan(&n))
	return n
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

// sendStream sends a body whose length is not known.
func sendStream(t testing.TB, w *apiservertest.Project, key, path string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/projects/"+w.ProjectID.String()+path, body)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/gzip")
	recorder := httptest.NewRecorder()
	w.Server.Handler().ServeHTTP(recorder, request)
	return recorder
}

// The uploads of a project leave slots for other projects.
func TestUploadDeployment_LimitsUploadsPerProject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/deployments/upload?environment_id="+w.IDs["environment"]
	require.NoError(t, w.Server.Deployments.Uploads.Take(w.ProjectID, deployments.MaxUploads/deployments.UploadShare))
	apiservertest.RequireCode(t, http.StatusTooManyRequests, httpserver.CodeRateLimited, w.Project, key, http.MethodPost, path, apiservertest.Upload)
	w.Server.Deployments.Uploads.Give(w.ProjectID, deployments.MaxUploads/deployments.UploadShare)
	uploadDeployment(t, w, key, "", apiservertest.Upload)
	require.Zero(t, w.Server.Deployments.Uploads.Taken())
}

// An upload can be deployed again while it is stored.
func TestRedeploy_ReusesUpload(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	removeGit(t, w)
	key := w.CreateKey(t, nil)
	made := uploadDeployment(t, w, key, "", apiservertest.Upload)
	o := w.DeploymentObject(t, made.ID)
	begun, err := w.RecordDeployment(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, w.Store.EndDeployment(t.Context(), begun, store.DeploymentFailed, store.FailureTests, "no"))
	for call, skips := range map[string]bool{"redeploy": false, "deploy-anyway": true} {
		t.Run(call, func(t *testing.T) {
			again := w.CreateDeployment(t, key, "/deployments/"+made.ID+"/"+call, "", http.StatusOK)
			require.Equal(t, made.ID, *again.RedeployOf)
			require.Equal(t, skips, again.SkipTests)
			require.Equal(t, o.Spec.Source, w.DeploymentObject(t, again.ID).Spec.Source)
		})
	}
	w.ExecuteSQL(t, `DELETE FROM uploads`)
	for _, call := range []string{"redeploy", "deploy-anyway"} {
		p := apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeUploadGone, w.Project, key, http.MethodPost, "/deployments/"+made.ID+"/"+call, "")
		require.Contains(t, p.Detail, "30 days")
	}
}
