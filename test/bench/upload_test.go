// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

const (
	// uploadSize is the size of an upload's body in bytes. uploadsAtOnce is the number of concurrent uploads. uploadRounds is
	// the number of sequential uploads on each connection.
	uploadSize    = 10 << 20
	uploadsAtOnce = 8
	uploadRounds  = 4
	// uploadAim limits the gateway's memory for an upload, as a fraction of the size of its body.
	uploadAim = 1
	// formRoom is the size of a form without its file.
	formRoom = 512
)

// BenchmarkUpload measures the peak growth of a gateway process's memory per concurrent multipart upload, and compares it with
// the size of an upload.
func BenchmarkUpload(b *testing.B) {
	silence(b)
	db := openPostgres(b)
	var inbound []string // no runner executes the accepted runs
	for range peakProjects {
		scene := storebench.NewScene(b, db.store, 1)
		release(b, db.store, scene, scripted{name: agentName, text: "Hello."})
		inbound = append(inbound, pathOf(scene, scene.Connector))
	}
	gw, public, _ := gatewayProcess(b, db)
	contentType, small := form(b, 1<<10)
	require.NoError(b, upload(public, inbound[0], contentType, small))
	contentType, body := form(b, uploadSize)
	before := gw.peak(b)
	var uploads errgroup.Group
	for i := range uploadsAtOnce {
		uploads.Go(func() error {
			for range uploadRounds {
				if err := upload(public, inbound[i%len(inbound)], contentType, body); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, uploads.Wait())
	print(b, Cost("memory/webhookgw/upload of 10 MiB", "MiB", (gw.peak(b)-before)/uploadsAtOnce, uploadSize>>20, uploadAim))
}

// form returns a body of about the given size with a field and a file.
func form(b *testing.B, size int) (contentType string, body []byte) {
	b.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	require.NoError(b, w.WriteField("name", "Ada"))
	part, err := w.CreateFormFile("file", "a.pdf")
	require.NoError(b, err)
	_, err = io.WriteString(part, "%PDF-1.7\n"+strings.Repeat("x", size-formRoom))
	require.NoError(b, err)
	require.NoError(b, w.Close())
	return w.FormDataContentType(), out.Bytes()
}

// upload posts a body and requires that the gateway accepts its file.
func upload(addr, path, contentType string, body []byte) error {
	resp, err := http.Post("http://"+addr+path, contentType, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(said, []byte(`"accepted":1`)) {
		return fmt.Errorf("an upload was answered %s: %s: %w", resp.Status, said, cmpErr(err, errStatus))
	}
	return nil
}
