// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// packedFolder is the content of a folder in the form of an upload. All attempts to upload it have the same idempotency key.
type packedFolder struct {
	digest string
	key    string
	bytes  []byte
	files  int
}

// readFolder reads the files of a project from a folder. Mistakes in the files are returned as bundle.Problems.
func readFolder(dir string) (bundle.Files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the project: %w", err)
	}
	defer root.Close()
	files, err := bundle.ReadFiles(root.FS())
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no agents: name the folder that contains the folder agents", dir)
	}
	return files, err
}

// packFolder packs files. Equal files have equal digests.
func packFolder(files bundle.Files) (packedFolder, error) {
	var b bytes.Buffer
	digest, _, err := bundle.Pack(files, &b)
	if err != nil {
		return packedFolder{}, fmt.Errorf("packing the folder: %w", err)
	}
	return packedFolder{digest, rand.Text(), b.Bytes(), len(files)}, nil
}

// uploadFolder uploads a folder and deploys it. On a terminal it shows the progress.
func (c *apiClient) uploadFolder(ctx context.Context, to restclient.Environment, p packedFolder, skipTests bool, messages io.Writer) (deployment, error) {
	params := &restclient.UploadDeploymentParams{EnvironmentID: to.ID, IdempotencyKey: &p.key}
	if skipTests {
		params.SkipTests = &skipTests
	}
	document, err := c.UploadDeployment(ctx, params, "application/zstd", bytes.NewReader(p.bytes), showProgress(messages, len(p.bytes)))
	if isTerminal(messages) {
		fmt.Fprintf(messages, "%s", clearLine)
	}
	var problem *restclient.ProblemError
	if errors.As(err, &problem) && problem.Status == http.StatusNotImplemented {
		return deployment{}, fmt.Errorf("this server accepts no uploads: %w", err)
	}
	if err == nil {
		fmt.Fprintf(messages, "uploaded %d files, %s\n", p.files, formatBytes(len(p.bytes)))
	}
	return deployment{document}, err
}

// showProgress returns a request editor that shows on a terminal how much of the body was sent, in each attempt.
func showProgress(messages io.Writer, size int) restclient.RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		if !isTerminal(messages) {
			return nil
		}
		open := request.GetBody
		request.GetBody = func() (io.ReadCloser, error) {
			body, err := open()
			return &progressReader{ReadCloser: body, size: size, out: messages}, err
		}
		return nil
	}
}

// clearLine clears the current line of a terminal.
var clearLine = control("[G") + control("[K")

// progressReader shows on a terminal how much was read from it.
type progressReader struct {
	io.ReadCloser
	done, size int
	out        io.Writer
}

func (p *progressReader) Read(piece []byte) (int, error) {
	n, err := p.ReadCloser.Read(piece)
	p.done += n
	fmt.Fprintf(p.out, "%suploading %s of %s", clearLine, formatBytes(p.done), formatBytes(p.size))
	return n, err
}

// formatBytes formats a number of bytes in KiB or MiB.
func formatBytes(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
