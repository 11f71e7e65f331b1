// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// Each client sends these fields, one of them twice, and a file.
var (
	fields   = [][2]string{{"name", "Ada & Éva = 1+1;"}, {"topic", "bread"}, {"topic", "butter"}}
	fileName = "Schäden 1.png"
	picture  = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89")
)

// client sends the fields to a URL, with the file if multipart is true.
type client func(t *testing.T, url string, multipart bool)

var clients = map[string]client{
	"curl": func(t *testing.T, url string, multipart bool) {
		args := []string{"-sS", "--fail-with-body", url}
		for _, f := range fields {
			if multipart {
				args = append(args, "--form-string", f[0]+"="+f[1])
			} else {
				args = append(args, "--data-urlencode", f[0]+"="+f[1])
			}
		}
		if multipart {
			dir, err := os.MkdirTemp("", "clients") // curl splits a path at a comma, which the name of a test can have.
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			file := filepath.Join(dir, fileName)
			require.NoError(t, os.WriteFile(file, picture, 0o600))
			args = append(args, "-F", "photo=@"+file+";type=image/png")
		}
		run(t, nil, "", "curl", args...)
	},
	"node": func(t *testing.T, url string, multipart bool) {
		run(t, scriptInput(t, url, multipart), "", "node", "--input-type=module", "-e", `
			import { readFileSync } from "node:fs";
			const { url, multipart, fields, file, data } = JSON.parse(readFileSync(0));
			const body = multipart ? new FormData() : new URLSearchParams();
			for (const [name, value] of fields) body.append(name, value);
			if (multipart) body.append("photo", new Blob([Buffer.from(data, "base64")], { type: "image/png" }), file);
			const answer = await fetch(url, { method: "POST", body });
			if (!answer.ok) throw new Error(answer.status + " " + await answer.text());`)
	},
	"python": func(t *testing.T, url string, multipart bool) {
		run(t, scriptInput(t, url, multipart), "", "python3", "-c", `
import base64, json, sys, urllib.parse, urllib.request
from urllib3.filepost import encode_multipart_formdata
p = json.load(sys.stdin)
fields = [tuple(f) for f in p["fields"]]
if p["multipart"]:
    fields.append(("photo", (p["file"], base64.b64decode(p["data"]), "image/png")))
    body, kind = encode_multipart_formdata(fields)
else:
    body, kind = urllib.parse.urlencode(fields).encode(), "application/x-www-form-urlencoded"
urllib.request.urlopen(urllib.request.Request(p["url"], data=body, headers={"Content-Type": kind}))`)
	},
	"chromium": func(t *testing.T, url string, multipart bool) {
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprint(w, formPage(url, multipart)) // The browser may have gone.
		}))
		t.Cleanup(page.Close)
		run(t, nil, "", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(),
			"--virtual-time-budget=30000", "--dump-dom", page.URL)
	},
}

// scriptInput returns the input of a script.
func scriptInput(t *testing.T, url string, multipart bool) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"url": url, "multipart": multipart, "fields": fields, "file": fileName, "data": picture})
	require.NoError(t, err)
	return text
}

// formPage returns a page that submits itself.
func formPage(url string, multipart bool) string {
	var b strings.Builder
	kind := "application/x-www-form-urlencoded"
	if multipart {
		kind = "multipart/form-data"
	}
	fmt.Fprintf(&b, `<!doctype html><meta charset="utf-8"><form id="f" method="post" enctype="%s" action="%s">`, kind, html.EscapeString(url))
	for _, f := range fields {
		fmt.Fprintf(&b, `<input name="%s" value="%s">`, f[0], html.EscapeString(f[1]))
	}
	if multipart {
		fmt.Fprintf(&b, `<input type="file" name="photo" id="p"></form><script>
			const files = new DataTransfer();
			files.items.add(new File([Uint8Array.from(atob(%q), c => c.charCodeAt(0))], %q, {type: "image/png"}));
			document.getElementById("p").files = files.files;`, base64.StdEncoding.EncodeToString(picture), fileName)
	} else {
		b.WriteString(`</form><script>`)
	}
	b.WriteString(`document.getElementById("f").submit();</script>`)
	return b.String()
}

// All clients produce the same input for agents.
func TestForms_OfAllClientsAgree(t *testing.T) {
	p := startPlatform(t)
	for _, multipart := range []bool{false, true} {
		for name, send := range clients {
			t.Run(fmt.Sprintf("%s, multipart %v", name, multipart), func(t *testing.T) {
				c := p.connector(fmt.Sprintf("%s-%v", name, multipart), nil)
				send(t, p.webhookURL(c), multipart)
				events, total := p.listRuns(c)
				require.EqualValues(t, 1, total)
				run := store.Key{ProjectID: p.project, ID: events[0].RunIDs[0]}
				_, body, err := p.store.RunInput(t.Context(), run)
				require.NoError(t, err)
				require.JSONEq(t, `{"name": "Ada & Éva = 1+1;", "topic": ["bread", "butter"]}`, string(readAll(t, body)))
				files, err := p.store.RunFiles(t.Context(), run)
				require.NoError(t, err)
				if !multipart {
					require.Empty(t, files)
					return
				}
				require.Len(t, files, 1)
				require.NotNil(t, files[0].Blob)
				require.Equal(t, store.File{Name: fileName, FieldName: "photo", MIMEType: "image/png", Size: int64(len(picture)), Blob: files[0].Blob}, files[0])
				_, content, err := p.store.OpenRunFile(t.Context(), run, 0)
				require.NoError(t, err)
				require.Equal(t, picture, readAll(t, content))
			})
		}
	}
}
