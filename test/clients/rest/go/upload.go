// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"os"

	"github.com/google/uuid"

	api "example.com/shop/agentplatform"
)

// deployment deploys the folder, and is cancelled.
func (s *story) deployment(ctx context.Context, environment uuid.UUID) {
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	must(files.AddFS(os.DirFS(s.folder)))
	must(files.Close())
	must(packed.Close())
	skip := true
	sent, err := s.UploadDeploymentWithBodyWithResponse(ctx, s.project,
		&api.UploadDeploymentParams{EnvironmentId: environment, SkipTests: &skip}, "application/gzip", &archive)
	made := ok(sent.JSON201, sent, err)
	check(made.Source.Type == api.SourceTypeUpload, "source: %+v", made.Source)
	got, err := s.ListDeploymentsWithResponse(ctx, s.project, &api.ListDeploymentsParams{EnvironmentId: environment})
	listed := ok(got.JSON200, got, err)
	check(len(listed) == 1 && listed[0].Id == made.Id, "deployments: %+v", listed)
	cancelled, err := s.CancelDeploymentWithResponse(ctx, s.project, made.Id, nil)
	ok(cancelled.JSON200, cancelled, err)
}
