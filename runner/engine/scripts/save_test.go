// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// depot is a service with files. It counts its requests.
func depot(t *testing.T) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch kind, size, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); kind {
		case "bytes":
			n, _ := strconv.Atoi(size)
			w.Header().Set("Content-Type", "application/pdf")
			_, _ = w.Write(make([]byte, n))
		case "endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("the beginning"))
		case "moved":
			http.Redirect(w, r, "/text/report.txt", http.StatusFound)
		case "text":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintf(w, "the text for %q", r.Header.Get("Authorization"))
		case "typed":
			w.Header().Set("Content-Type", "text/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			_, _ = w.Write([]byte("a"))
		case "named":
			w.Header().Set("Content-Disposition", `attachment; filename="../we ird.csv"`)
			_, _ = w.Write([]byte("a,b"))
		case "json":
			_, _ = w.Write([]byte(`{"n": 9007199254740993}`))
		default:
			http.Error(w, "no such file", http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// saves is a tool that saves a file and returns what a line returns.
func saves(url, path, line string) string {
	return fmt.Sprintf("def run():\n    \"\"\"Saves a file.\"\"\"\n    f = http.save(%q + %q, headers = {\"Authorization\": \"Bearer \" + env(\"TOKEN\")})\n    %s\n",
		url, path, line)
}

func TestSave_StoresFile(t *testing.T) {
	t.Parallel()
	url, _ := depot(t)
	for name, row := range map[string]struct{ path, line, want string }{
		"metadata":             {"/bytes/3", `return f`, `{"id":"s1","mime_type":"application/pdf","name":"3","size":3}`},
		"the largest":          {"/bytes/10485760", `return f["size"]`, `{"result":10485760}`},
		"one byte beyond":      {"/bytes/10485761", ``, "http.save: the response of the service has more than 10 MiB"},
		"endless":              {"/endless", ``, "http.save: the response of the service has more than 10 MiB"},
		"cut off":              {"/cut", ``, "http.save: the response of the service ended early"},
		"a status":             {"/none", ``, "http.save: the service responded with the status 404: no such file"},
		"after a redirect":     {"/moved", `return [f["name"], files.text("s1")]`, `{"result":["moved","the text for \"Bearer [REDACTED]\""]}`},
		"without the secret":   {"/text/a", `return files.text("s1")`, `{"result":"the text for \"Bearer [REDACTED]\""}`},
		"type with the secret": {"/typed", `return f["mime_type"]`, `{"result":"application/octet-stream"}`},
		"named by service":     {"/named", `return [f["name"], f["mime_type"]]`, `{"result":["we ird.csv","text/plain"]}`},
		"JSON":                 {"/json/a", `return files.json("s1")["n"]`, `{"result":9007199254740993}`},
		"no JSON":              {"/text/a", `return files.json("s1")`, "files.json: the file is not JSON"},
		"binary":               {"/bytes/3", `return files.text("s1")`, "files.text: the file is not text in UTF-8"},
		"listed":               {"/bytes/3", `return [g["id"] for g in files.list()]`, `{"result":["f1","s1"]}`},
		"large as text":        {"/bytes/300000", `return files.json("s1")`, "files.json: the file has 300000 bytes, at most 262144 are allowed"},
		"unknown":              {"/bytes/3", `return files.text("s2")`, "files.text: the run has no file with this ID; files.list returns the IDs"},
		"another host":         {"/moved", `return http.save("http://10.0.0.1/")`, "http.save: the address of the tool is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, saves(url, row.path, row.line), "{name: t_run}")
			b.files = []engine.File{{Name: "a", MIMEType: "text/plain", Data: []byte("a")}}
			out, journal := b.execute(t, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			require.Contains(t, out.Output, row.want)
			text, err := json.Marshal(journal)
			require.NoError(t, err)
			require.NotContains(t, string(text), canary)
			again, _ := b.execute(t, journal[:len(journal)-2]) // without the result of the tool
			require.Equal(t, out.Output, again.Output)
		})
	}
}

// A script that is resumed from any position requests a file again only if its entry is not in the journal, and sees the same
// files.
func TestSave_ResumesAtEachEntry(t *testing.T) {
	t.Parallel()
	url, requests := depot(t)
	source := fmt.Sprintf(`
def run():
    """Saves files."""
    seen = [[f["id"] for f in files.list()]]
    for name in ["a", "b", "c"]:
        f = http.save(%q + "/text/" + name, name = name)
        http.post(env("SHOP") + "/" + name, json = {"seen": seen, "size": f["size"]})
        seen.append([f["id"] for f in files.list()])
    return {"seen": seen, "text": files.text("s2")}
`, url)
	b := newBench(t, source, "{name: t_run}")
	b.setModel(t, "steps: [{turn: 1, tool_calls: [{name: t_run}]}, {turn: 2, tool_calls: [{name: t_run}]}, {match: '(?s)tool t_run: (?P<r>.*)', text: '${r}'}]")
	out, journal := b.execute(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Contains(t, out.Output, `{"seen":[[],["s1"],["s1","s2"],["s1","s2","s3"]],"text":"the text for \"\""}`)
	require.Contains(t, out.Output, `{"seen":[["s1","s2","s3"],["s1","s2","s3","s4"],["s1","s2","s3","s4","s5"],["s1","s2","s3","s4","s5","s6"]],`)
	require.EqualValues(t, 6, requests.Load())
	require.Len(t, b.shop.writes(), 6)
	for cut := range journal {
		if cut > 0 && journal[cut-1].Kind == dispatchapi.JournalFile {
			continue // The entry of a file and the result that names it are one append.
		}
		t.Run(fmt.Sprint("resumed after entry ", cut), func(t *testing.T) {
			prior := slices.Clone(journal[:cut])
			had := 0
			for _, e := range prior {
				if e.Kind == dispatchapi.JournalFile {
					had++
				}
			}
			requests.Store(0)
			again, _ := b.execute(t, prior)
			if again.Status != engine.Completed {
				require.Equal(t, dispatchapi.JournalToolStarted, prior[cut-1].Kind, "only a request that is itself in flight")
				return
			}
			require.Equal(t, out.Output, again.Output)
			require.EqualValues(t, 6-had, requests.Load())
		})
	}
}

// Without a place for files, a script gets an error.
func TestSave_NeedsPlace(t *testing.T) {
	t.Parallel()
	url, requests := depot(t)
	b := newBench(t, saves(url, "/text/a", ""), "{name: t_run}")
	var journal memory
	out := b.engine.Execute(t.Context(), engine.Input{RunID: "r1", AgentName: "main", Project: b.project, Message: "hi", Journal: &journal, Context: map[string]any{}})
	require.Contains(t, out.Output, "http.save: files cannot be saved here")
	require.Zero(t, requests.Load())
}

// A file that the platform does not save is an error of the script, which its next attempts get again, and the run continues.
func TestSave_ReturnsRejection(t *testing.T) {
	t.Parallel()
	url, requests := depot(t)
	b := newBench(t, saves(url, "/text/a", `return [f["id"] for f in files.list()]`), "{name: t_run}")
	b.setModel(t, "steps: [{turn: 1, tool_calls: [{name: t_run}]}, {turn: 2, tool_calls: [{name: t_run}]}, {match: '(?s)(?P<r>.*)', text: '${r}'}]")
	b.kept.rejections = []httpserver.Code{httpserver.CodeTooLarge}
	out, journal := b.execute(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Contains(t, out.Output, "http.save: the file is not saved: the file exceeds a limit of the run")
	require.Contains(t, out.Output, `{"result":["s1"]}`, "the second one is saved")
	var kinds []string
	for i, e := range journal {
		kinds = append(kinds, e.Kind)
		require.EqualValues(t, i+1, e.Sequence)
	}
	require.Equal(t, 1, strings.Count(strings.Join(kinds, " "), "step tool_result"), "%v", kinds)
	require.Equal(t, 1, strings.Count(strings.Join(kinds, " "), "file tool_result"), "%v", kinds)
	rejected, saved := slices.Index(kinds, dispatchapi.JournalStep), slices.Index(kinds, dispatchapi.JournalFile)
	for cut := range journal {
		if cut == saved+1 || cut == rejected+1 {
			continue // The two entries are one append.
		}
		t.Run(fmt.Sprint("resumed after entry ", cut), func(t *testing.T) {
			prior := slices.Clone(journal[:cut])
			b.kept.rejections = nil
			want := int64(2)
			if cut <= rejected {
				b.kept.rejections = []httpserver.Code{httpserver.CodeTooLarge}
			} else {
				want--
			}
			if cut > saved {
				want--
			}
			requests.Store(0)
			again, _ := b.execute(t, prior)
			require.Equal(t, engine.Completed, again.Status, "%s %v", again.Error, again.Cause)
			require.Equal(t, out.Output, again.Output)
			require.Equal(t, want, requests.Load())
		})
	}
}

// After a rejection for full storage, the attempt requests and sends no more files. Its next attempts get the same errors.
func TestSave_StopsAtFullStorage(t *testing.T) {
	t.Parallel()
	url, requests := depot(t)
	b := newBench(t, saves(url, "/text/a", `return [f["id"] for f in files.list()]`), "{name: t_run}")
	b.setModel(t, "steps: [{turn: 1, tool_calls: [{name: t_run}]}, {turn: 2, tool_calls: [{name: t_run}]}, {match: '(?s)(?P<r>.*)', text: '${r}'}]")
	b.kept.rejections = []httpserver.Code{httpserver.CodeStorageFull}
	out, journal := b.execute(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Equal(t, 2, strings.Count(out.Output, "http.save: the file is not saved: the project's storage is full"), out.Output)
	require.EqualValues(t, 1, requests.Load())
	again, _ := b.execute(t, journal)
	require.Equal(t, out.Output, again.Output)
	require.EqualValues(t, 1, requests.Load())
}
