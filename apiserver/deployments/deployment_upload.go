// SPDX-License-Identifier: Apache-2.0

package deployments

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
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// MaxUploads limits the concurrent uploads, because each holds two chunks of the store in memory. UploadShare is the
	// divisor of a project's part.
	MaxUploads  = 32
	UploadShare = 4
	// uploadTime limits an upload. The largest upload at uploadPace takes less time.
	uploadTime = 10 * time.Minute
	// uploadRetry is the Retry-After if there are too many uploads, and storageRetry if the project's storage is full.
	uploadRetry  = 5 * time.Second
	storageRetry = 5 * time.Minute
)

// uploadPace is the minimum rate of an upload.
var uploadPace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 10 * time.Second}

// archives are the accepted media types with the first bytes of their bodies.
var archives = map[string]string{
	"application/gzip": "\x1f\x8b",
	"application/zstd": "\x28\xb5\x2f\xfd",
}

// archive describes the body of an upload.
var archive = &rest.RawBody{
	Doc:   "A tar archive of the project's folder, at most 25 MiB. `agents`, `connectors` and the other folders are at its root.",
	Types: []string{"application/gzip", "application/zstd"},

	TooLarge:    "The body is larger than 25 MiB.",
	Unsupported: "The body is neither application/gzip nor application/zstd.",
}

// DeploymentUploadInput is the request that uploads and deploys a folder.
type DeploymentUploadInput struct {
	rest.EnvironmentQuery
	SkipTests bool `query:"skip_tests" doc:"Skips the test phase. The tests are read and checked, but do not run."`

	request *http.Request
	answer  http.ResponseWriter
}

// Resolve implements huma.Resolver. It keeps the request, because the body is streamed.
func (in *DeploymentUploadInput) Resolve(ctx huma.Context) []error {
	in.request, in.answer = humachi.Unwrap(ctx)
	return nil
}

var uploadDeployment = rest.Handle((*API).uploadDeployment, rest.Endpoint{
	Method: rest.Post, Path: "/deployments/upload", ID: "uploadDeployment",
	Permissions: rest.Requires("deployments.create"), Effect: rest.EffectCreate, Status: 201, Errors: rest.CreateErrors,
	Upload:  archive,
	Summary: "Deploy a folder",
	Doc: "Builds the folder in the body, tests it and makes it live, like a commit. Use it for projects without a Git " +
		"repository, or to try a change. Files outside the folders of a repository's layout are ignored. The build fails if " +
		"these folders contain a link, if a path leaves the archive, or if the body is no such archive. Pending and building " +
		"deployments of the environment are cancelled.\n\n" +
		"An upload counts toward the stored bytes of the project. The platform keeps it while one of its deployments is live, " +
		"and for 30 days after the last start of one of its deployments. During that time you can deploy it again. An upload " +
		"that no deployment has started to build expires after a day.\n\n" +
		"Returns 429 if the project has reached its storage limit or its number of concurrent uploads. Returns 403 if the " +
		"environment's tests use the variables of another environment that the key does not reach, unless `skip_tests` is set.",
	Example: rest.Example{Path: "/deployments/upload?environment_id={environment}&skip_tests=true"},
})

// uploadDeployment stores a folder and deploys it. It runs all checks before it reads the body.
func (s *API) uploadDeployment(ctx context.Context, c *rest.Caller, in *DeploymentUploadInput) (rest.Response[Deployment], error) {
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	if err := checkEnvironment(c, environment, in.SkipTests); err != nil {
		return rest.Response[Deployment]{}, err
	}
	if err := rest.LimitProblem(s.Uploads.Take(c.ProjectID, 1), "too many concurrent uploads; try again", uploadRetry); err != nil {
		return rest.Response[Deployment]{}, err
	}
	defer s.Uploads.Give(c.ProjectID, 1)
	digest, err := s.upload(ctx, c.ProjectID, in)
	if err != nil {
		return rest.Response[Deployment]{}, err
	}
	ctx, cancel := withUploadTime(ctx, s.Service.RequestTimeout)
	defer cancel()
	spec := v1alpha1.DeploymentSpec{SkipTests: in.SkipTests, Source: uploadedSource(digest)}
	return s.launch(ctx, c, environment, spec)
}

func uploadedSource(digest string) v1alpha1.DeploymentSource {
	return v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: v1alpha1.UploadDigest(digest)}}
}

// withUploadTime returns a context with its own timeout, which also ends if the client disconnects.
func withUploadTime(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	on, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	gone := rest.ClientGone(ctx)
	go func() {
		select {
		case <-gone:
			cancel()
		case <-on.Done():
		}
	}()
	return on, cancel
}

// upload stores the body and returns its digest.
func (s *API) upload(ctx context.Context, project uuid.UUID, in *DeploymentUploadInput) (string, error) {
	media, _, err := mime.ParseMediaType(in.request.Header.Get("Content-Type"))
	start, known := archives[media]
	switch {
	case err != nil || !known:
		return "", rest.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia, "the body must be a tar archive with Content-Type application/gzip or application/zstd")
	case in.request.ContentLength > store.MaxUpload:
		return "", errUploadTooLarge
	}
	ctx, cancel := withUploadTime(ctx, uploadTime)
	defer cancel()
	body := &notedBody{Reader: httpserver.Paced(in.answer, httpserver.WholeBody(in.request.Body), uploadPace)}
	begin := make([]byte, len(start))
	n, err := io.ReadFull(body, begin)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(body.err, io.EOF), err == nil && string(begin) != start:
		return "", rest.InvalidField("body", "does not have the format that Content-Type names")
	case err != nil:
		return "", body.problem(err)
	}
	stored, err := s.Store.PutUpload(ctx, project, io.MultiReader(bytes.NewReader(begin[:n]), body), store.MaxUpload)
	if err != nil {
		return "", body.problem(err)
	}
	httpserver.BodyRead(in.answer)
	return stored.Digest, nil
}

var errUploadTooLarge = rest.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge,
	fmt.Sprintf("an upload can have at most %d MiB; leave out files that agents do not need", store.MaxUpload>>20))

// notedBody is a body that keeps its read error.
type notedBody struct {
	io.Reader
	err error
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.err = err
	}
	return n, err
}

// problem returns the response to an error of the body, or the error of the store.
func (b *notedBody) problem(err error) error {
	var full *store.StorageFullError
	switch {
	case errors.As(err, &full):
		p := rest.NewProblem(http.StatusTooManyRequests, httpserver.CodeStorageFull, full.Error()+"; ask the platform operator for a plan with more storage")
		p.RetryAfter = storageRetry
		return p
	case errors.Is(err, store.ErrTooLarge):
		return errUploadTooLarge
	case b.err == nil, errors.Is(b.err, io.EOF):
		return err
	case httpserver.TooSlow(b.err):
		return rest.NewProblem(http.StatusRequestTimeout, httpserver.CodeTimeout, "the body did not arrive in time")
	}
	return rest.NewProblem(http.StatusBadRequest, httpserver.CodeMalformed, "the body could not be read to its end")
}
