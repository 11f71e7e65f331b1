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
	"net/url"
	"os"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
)

// uploadTime bounds sending a folder.
const uploadTime = 10 * time.Minute

// packed is what is in a folder, as it is uploaded: under one key, however often.
type packed struct {
	digest string
	key    string
	bytes  []byte
	files  int
}

// readFolder reads what agents are made of in a folder; what is wrong with the files is said
// as bundle.Problems.
func readFolder(dir string) (bundle.Files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the project: %w", err)
	}
	defer root.Close()
	files, err := bundle.ReadFiles(root.FS())
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no agents: name the folder in which the folder agents is", dir)
	}
	return files, err
}

// packFolder packs files. Equal files are packed equally, so that an upload is told by its digest.
func packFolder(files bundle.Files) (packed, error) {
	var b bytes.Buffer
	digest, _, err := bundle.Pack(files, &b)
	if err != nil {
		return packed{}, fmt.Errorf("packing the folder: %w", err)
	}
	return packed{digest, rand.Text(), b.Bytes(), len(files)}, nil
}

// upload uploads what was packed, and deploys it.
func (r *rest) upload(ctx context.Context, to environment, p packed, skipTests bool, messages io.Writer) (d deployment, err error) {
	path := "/deployments/upload?environment_id=" + url.QueryEscape(to.ID)
	if skipTests {
		path += "&skip_tests=true"
	}
	patient := *r.http
	patient.Timeout = uploadTime
	err = r.repeated(ctx, func() error {
		body := io.Reader(bytes.NewReader(p.bytes))
		if isTerminal(messages) {
			body = &progress{Reader: body, all: len(p.bytes), out: messages}
		}
		_, err := r.once(ctx, &patient, restRequest{http.MethodPost, path, map[string]string{"Idempotency-Key": p.key}, "application/zstd", body, len(p.bytes)}, &d)
		if isTerminal(messages) {
			fmt.Fprintf(messages, "%s", clearLine)
		}
		return err
	})
	var problem *restError
	if errors.As(err, &problem) && problem.Status == http.StatusNotImplemented {
		return d, fmt.Errorf("this server takes no uploads: %w", err)
	}
	if err == nil {
		fmt.Fprintf(messages, "uploaded %d files, %s\n", p.files, megabytes(len(p.bytes)))
	}
	return d, err
}

// clearLine takes away what a line of a terminal shows.
var clearLine = control("[G") + control("[K")

// progress shows on a terminal how much of something was read.
type progress struct {
	io.Reader
	done, all int
	out       io.Writer
}

// Read implements io.Reader.
func (p *progress) Read(piece []byte) (int, error) {
	n, err := p.Reader.Read(piece)
	p.done += n
	fmt.Fprintf(p.out, "%suploading %s of %s", clearLine, megabytes(p.done), megabytes(p.all))
	return n, err
}

// megabytes says how many bytes there are.
func megabytes(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
