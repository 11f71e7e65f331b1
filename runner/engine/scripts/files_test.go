// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// A script of a tool reads the attachments of the event. They are not part of the journal.
func TestScript_ReadsAttachments(t *testing.T) {
	t.Parallel()
	files := []engine.File{
		{Name: "order.json", MIMEType: "application/json", Data: []byte(`{"id": 12345678901234567890, "note": "<é>"}`)},
		{Name: "scan.png", MIMEType: "image/png", Data: []byte("\x89PNG\x00")},
		{Name: "large.txt", MIMEType: "text/plain", Data: []byte(strings.Repeat("é", 200_000))},
		{Name: "zero.txt", MIMEType: "text/plain", Data: bytes.Repeat([]byte{0}, 3)},
		{Name: "page.html", MIMEType: "text/html", Data: bytes.Repeat([]byte("<"), 300_000)},
	}
	for name, row := range map[string]struct{ line, want string }{
		"list": {`return [(f["id"], f["name"], f["mime_type"], f["size"]) for f in files.list()][:2]`,
			`{"result":[["f1","order.json","application/json",44],["f2","scan.png","image/png",5]]}`},
		"text":          {`return files.text("f1")`, `{"result":"{\"id\": 12345678901234567890, \"note\": \"\u003cé\u003e\"}"}`},
		"json":          {`return files.json("f1")["id"]`, `{"result":12345678901234567890}`},
		"beginning":     {`return files.text("f3", max = 5)`, `{"result":"éé"}`},
		"largest":       {`return len(files.text("f3"))`, `{"result":262144}`},
		"page":          {`return len(files.text("f5"))`, `{"result":262144}`},
		"no text":       {`return files.text("f2")`, "files.text: the file is not text in UTF-8"},
		"zero bytes":    {`return files.text("f4")`, "files.text: the file is not text in UTF-8"},
		"no JSON":       {`return files.json("f2")`, "files.json: the file is not JSON"},
		"large JSON":    {`return files.json("f3")`, "files.json: the file has 400000 bytes, at most 262144 are allowed"},
		"unknown":       {`return files.text("f6")`, "files.text: the run has no file with this ID; files.list returns the IDs"},
		"no number":     {`return files.text("order.json")`, "files.text: the run has no file with this ID; files.list returns the IDs"},
		"too much text": {`return files.text("f1", max = 262145)`, "files.text: max must be between 1 and 262144"},
		"no max":        {`return files.text("f1", max = "a")`, "files.text: an argument has a wrong type"},
		"many reads":    {`return [files.list() for _ in range(101)]`, "the script asks for more than 100 reads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "def run():\n    \"\"\"Reads a file.\"\"\"\n    "+row.line+"\n", "{name: t_run}")
			b.files = files
			out, journal := b.execute(t, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			require.Contains(t, out.Output, row.want)
			results := 0
			for _, e := range journal {
				if e.Kind == dispatchapi.JournalToolResult {
					results++
				}
			}
			require.Equal(t, 1, results, "the result of the tool")
			again, _ := b.execute(t, journal[:len(journal)-2])
			require.Equal(t, out.Output, again.Output, "in another attempt")
		})
	}
}
