// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxUploads is how many uploads come in at once, of which a project has one part in
	// uploadShare: each holds two pieces of the store's.
	maxUploads  = 32
	uploadShare = 4
	// uploadTime is how long one may take: longer than the largest takes at uploadPace.
	uploadTime = 10 * time.Minute
	// uploadRetry is what callers are told who find no place, and storageRetry who find the
	// project's storage full.
	uploadRetry  = 5 * time.Second
	storageRetry = 5 * time.Minute
)

// uploadPace is how slowly an upload may come in.
var uploadPace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 10 * time.Second}

// archives are the types of archives that are taken, and how their bytes begin.
var archives = map[string]string{
	"application/gzip": "\x1f\x8b",
	"application/zstd": "\x28\xb5\x2f\xfd",
}

// archive is the body of an upload.
var archive = &rawBody{
	about: "A tar archive of what is in the project's folder, agents and connectors and the others at its root, of at most 25 MiB.",
	types: []string{"application/gzip", "application/zstd"},

	tooLarge:    "The body is larger than 25 MiB.",
	unsupported: "The body is neither application/gzip nor application/zstd.",
}

// DeploymentUploadInput is the request that deploys what it uploads.
type DeploymentUploadInput struct {
	EnvironmentQuery
	SkipTests bool `query:"skip_tests" doc:"Whether the test phase is left out: the tests are read and checked, and not run."`

	request *http.Request
	answer  http.ResponseWriter
}

// Resolve implements huma.Resolver: the body is streamed, and never held whole.
func (in *DeploymentUploadInput) Resolve(ctx huma.Context) []error {
	in.request, in.answer = humachi.Unwrap(ctx)
	return nil
}

// uploadDeployment stores a folder and deploys it. What can be refused before is, so that
// nobody sends for nothing.
func (s *Server) uploadDeployment(ctx context.Context, c *caller, in *DeploymentUploadInput) (answer[Deployment], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Deployment]{}, err
	}
	if err := c.mayDeployTo(environment, in.SkipTests); err != nil {
		return answer[Deployment]{}, err
	}
	if err := quota.Refusal(s.uploads.Take(c.projectID, 1), errManyUploads(http.StatusTooManyRequests), errManyUploads(http.StatusServiceUnavailable)); err != nil {
		return answer[Deployment]{}, err
	}
	defer s.uploads.Give(c.projectID, 1)
	digest, err := s.upload(ctx, c.projectID, in)
	if err != nil {
		return answer[Deployment]{}, err
	}
	ctx, cancel := goOn(ctx, s.deadline)
	defer cancel()
	spec := v1alpha1.DeploymentSpec{SkipTests: in.SkipTests, Source: uploadedSource(digest)}
	return s.launch(ctx, c, environment, spec)
}

func uploadedSource(digest string) v1alpha1.DeploymentSource {
	return v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: v1alpha1.UploadDigest(digest)}}
}

func errManyUploads(status int) Problem {
	code := httpserver.CodeBusy
	if status == http.StatusTooManyRequests {
		code = httpserver.CodeRateLimited
	}
	p := problem(status, code, "as many uploads as may are coming in at the moment; try again")
	p.RetryAfter = uploadRetry
	return p
}

// goOn is a context with a time of its own, which ends when the client goes.
func goOn(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	on, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	gone := trailOf(ctx).gone
	go func() {
		select {
		case <-gone:
			cancel()
		case <-on.Done():
		}
	}()
	return on, cancel
}

// upload stores the body and says its digest.
func (s *Server) upload(ctx context.Context, project uuid.UUID, in *DeploymentUploadInput) (string, error) {
	media, _, err := mime.ParseMediaType(in.request.Header.Get("Content-Type"))
	start, known := archives[media]
	switch {
	case err != nil || !known:
		return "", problem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, "the body must be a tar archive of application/gzip or application/zstd, and Content-Type say which")
	case in.request.ContentLength > store.MaxUpload:
		return "", errUploadTooLarge
	}
	ctx, cancel := goOn(ctx, uploadTime)
	defer cancel()
	body := &noted{Reader: httpserver.Paced(in.answer, in.request.Body, uploadPace)}
	begin := make([]byte, len(start))
	n, err := io.ReadFull(body, begin)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(body.err, io.EOF), err == nil && string(begin) != start:
		return "", wrong("body", "is not of the type that Content-Type names")
	case err != nil:
		return "", body.problem(err)
	}
	stored, err := s.store.PutUpload(ctx, project, io.MultiReader(bytes.NewReader(begin[:n]), body), store.MaxUpload)
	if err != nil {
		return "", body.problem(err)
	}
	httpserver.BodyRead(in.answer)
	return stored.Digest, nil
}

var errUploadTooLarge = problem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge,
	fmt.Sprintf("an upload has at most %d MiB; leave out what agents do not need", store.MaxUpload>>20))

// noted is a body that keeps the error by which reading it ended.
type noted struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (b *noted) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.err = err
	}
	return n, err
}

// problem tells what is the body's fault from what is the store's.
func (b *noted) problem(err error) error {
	var full *store.StorageFullError
	switch {
	case errors.As(err, &full):
		p := problem(http.StatusTooManyRequests, httpserver.CodeStorageFull, full.Error()+"; ask the operator for a plan with more storage")
		p.RetryAfter = storageRetry
		return p
	case errors.Is(err, store.ErrTooLarge):
		return errUploadTooLarge
	case b.err == nil, errors.Is(b.err, io.EOF):
		return err
	case httpserver.TooSlow(b.err):
		return problem(http.StatusRequestTimeout, httpserver.CodeTimeout, "the body did not come in time")
	}
	return problem(http.StatusBadRequest, httpserver.CodeMalformed, "the body could not be read whole")
}
