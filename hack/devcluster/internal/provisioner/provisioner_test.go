// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/kubeapi"
)

// server returns fixed items for lists and records the writes.
type server struct {
	claims, volumes []object
	created         []object
	deleted         []string
	createStatus    int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any = object{}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == claimsPath:
		answer = object{"items": s.claims}
	case r.Method == http.MethodGet && r.URL.Path == volumesPath:
		answer = object{"items": s.volumes}
	case r.Method == http.MethodPost && r.URL.Path == volumesPath:
		var v object
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.created = append(s.created, v)
		w.WriteHeader(s.createStatus)
	case r.Method == http.MethodDelete:
		s.deleted = append(s.deleted, r.URL.Path)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func setup(t *testing.T) (*server, *Loop) {
	t.Helper()
	s := &server{createStatus: http.StatusCreated}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return s, &Loop{
		API:    &kubeapi.Client{Server: web.URL, HTTP: web.Client()},
		Folder: t.TempDir(),
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func pending(class string) object {
	return object{
		"metadata": object{"name": "data", "namespace": "team", "uid": "42"},
		"spec": object{"storageClassName": class, "accessModes": []string{"ReadWriteOnce"},
			"resources": object{"requests": object{"storage": "1Gi"}}},
		"status": object{"phase": "Pending"},
	}
}

func TestProvision_PendingClaim(t *testing.T) {
	t.Parallel()
	s, loop := setup(t)
	s.claims = []object{pending("local"), pending("other")}
	require.NoError(t, loop.runOnce(t.Context()))

	require.Len(t, s.created, 1)
	spec := s.created[0]["spec"].(object)
	folder := filepath.Join(loop.Folder, "pvc-42")
	require.Equal(t, object{"path": folder}, spec["local"])
	require.Equal(t, object{"storage": "1Gi"}, spec["capacity"])
	require.Equal(t, "42", spec["claimRef"].(object)["uid"])
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), info.Mode().Perm())
}

func TestProvision_ExistingVolume(t *testing.T) {
	t.Parallel()
	s, loop := setup(t)
	s.claims, s.createStatus = []object{pending("local")}, http.StatusConflict
	require.NoError(t, loop.runOnce(t.Context()))
	s.createStatus = http.StatusForbidden
	require.Error(t, loop.runOnce(t.Context()))
}

func TestDelete_RemovesReleasedVolume(t *testing.T) {
	t.Parallel()
	s, loop := setup(t)
	released := func(name, path, by string) object {
		return object{
			"metadata": object{"name": name, "annotations": object{provisionedA: by}},
			"spec":     object{"persistentVolumeReclaimPolicy": "Delete", "local": object{"path": path}},
			"status":   object{"phase": "Released"},
		}
	}
	folder := filepath.Join(loop.Folder, "pvc-42")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o755))
	s.volumes = []object{
		released("pvc-42", folder, Name),
		released("pvc-other", "/elsewhere", "someone.else"),
	}
	require.NoError(t, loop.runOnce(t.Context()))
	require.Equal(t, []string{volumesPath + "/pvc-42"}, s.deleted)
	require.NoDirExists(t, folder)
}

func TestDelete_KeepsForeignFolder(t *testing.T) {
	t.Parallel()
	s, loop := setup(t)
	elsewhere := t.TempDir()
	s.volumes = []object{{
		"metadata": object{"name": "pvc-42", "annotations": object{provisionedA: Name}},
		"spec":     object{"persistentVolumeReclaimPolicy": "Delete", "local": object{"path": elsewhere}},
		"status":   object{"phase": "Released"},
	}}
	require.ErrorContains(t, loop.runOnce(t.Context()), "its path")
	require.DirExists(t, elsewhere)
	require.Empty(t, s.deleted)
}
